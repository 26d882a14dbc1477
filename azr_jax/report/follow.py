"""Serves the page of runs while they train, for `azr_jax.report --follow`.

It polls the runs' files. When they have changed, it rebuilds the page, writes
it to its file and serves it on this machine; an open page loads the new version
without losing its place. The training process is not involved.
"""

import contextlib
import dataclasses
import hashlib
import html
import http.server
import pathlib
import threading
from collections.abc import Iterator

from azr_jax.evals import score_files
from azr_jax.report.command import PageRequest
from azr_jax.run import metrics, storage
from azr_jax.run.console import print_status

_LOOPBACK = ("127.0.0.1", "localhost")


class Live:
  """The newest page of the runs, rebuilt when their files change."""

  def __init__(self, request: PageRequest, every_s: float):
    """Checks the request, but does not wait for the runs' metrics.

    Args:
      request: the runs to report.
      every_s: seconds between an open page's polls.
    """
    request.check()
    self._request, self._every_s = request, every_s
    self._seen: object = None
    self.text = ""
    self.tag = ""

  def update(self) -> bool:
    """Rebuilds the page if the runs have changed; returns whether it did.

    Raises:
      ValueError: see `PageRequest.build`.
    """
    seen = [_state(path) for path in self._files()]
    if seen == self._seen:
      return False
    self._seen = seen
    begun = [path for path in self._request.paths if _has_begun(path)]
    if begun == list(self._request.paths):
      text = self._request.build(self._every_s)
    else:
      text = self._waiting([p for p in self._request.paths if p not in begun])
    self._request.save(text)
    self.text = text
    self.tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:16]}"'
    return True

  def _files(self) -> list[pathlib.Path]:
    """Returns the files to watch."""
    request = self._request
    folders = [storage.absolute(path.rstrip("/")) for path in request.paths]
    scores = [storage.resolve(path) for path in request.scores] or [
      folder.with_name(f"{folder.name}_scores") for folder in folders
    ]
    return [folder / metrics.METRICS for folder in folders] + [
      folder / score_files.RESULTS for folder in scores
    ]

  def _waiting(self, paths: list[str]) -> str:
    """Returns the page that is shown until every run has metrics."""
    names = ", ".join(map(html.escape, paths))
    return (
      '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
      '<meta name="viewport" content="width=device-width, initial-scale=1">'
      f'<meta http-equiv="refresh" content="{self._every_s:g}">'
      "<title>waiting</title></head><body><p>Waiting for the first step of "
      f"{names}.</p></body></html>\n"
    )


def _state(path: pathlib.Path) -> object:
  """Returns a value that changes when the file is written, or None."""
  try:
    status = path.stat()
  except OSError:
    return None
  fields = ("st_mtime_ns", "st_size", "mtime", "length")
  return [getattr(status, field, None) for field in fields]


def _has_begun(path: str) -> bool:
  """Returns whether a run has logged a step."""
  file = storage.absolute(path.rstrip("/")) / metrics.METRICS
  return file.exists() and b"\n" in file.read_bytes()


@contextlib.contextmanager
def serve(live: Live, host: str, port: int) -> Iterator[str]:
  """Serves the newest page at `/` while the context lasts; yields the URL.

  Args:
    live: the page to serve.
    host: the address to listen on.
    port: the TCP port. 0 picks a free one.

  Raises:
    OSError: the server cannot listen on the address.
  """

  class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with the page, or that it has not changed."""

    def do_GET(self) -> None:
      """Sends the page."""
      asked = self.headers.get("Host", "").rsplit(":", 1)[0]
      if host in _LOOPBACK and asked not in _LOOPBACK:
        # DNS rebinding: other sites must not read the page by their own name.
        self.send_error(403)
      elif self.path.split("?")[0] != "/":
        self.send_error(404)
      else:
        self._send_page()

    def _send_page(self) -> None:
      # Reading the tag first ensures that the text is not older than its tag.
      tag = live.tag
      text = live.text
      is_known = self.headers.get("If-None-Match") == tag
      self.send_response(304 if is_known else 200)
      self.send_header("ETag", tag)
      self.send_header("Cache-Control", "no-cache")
      if is_known:
        self.end_headers()
        return
      body = text.encode()
      self.send_header("Content-Type", "text/html; charset=utf-8")
      self.send_header("Content-Length", str(len(body)))
      self.end_headers()
      self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
      """Suppresses the default log."""

  with http.server.ThreadingHTTPServer((host, port), Handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
      yield f"http://{host}:{server.server_address[1]}/"
    finally:
      server.shutdown()


@dataclasses.dataclass(frozen=True)
class Place:
  """Where to serve the live page, and how often to update it.

  Attributes:
    host: the address to listen on.
    port: the TCP port. 0 picks a free one.
    every_s: seconds between polls of the runs' files.
  """

  host: str = "127.0.0.1"
  port: int = 0
  every_s: float = 10.0


def follow(request: PageRequest, place: Place, stop: threading.Event) -> None:
  """Serves and writes the page of the runs until `stop` is set.

  Args:
    request: the runs to report. They need not have started.
    place: where to serve the page.
    stop: ends the function when set.

  Raises:
    ValueError: see `PageRequest.build`.
    OSError: the server cannot listen on the address.
  """
  live = Live(request, place.every_s)
  live.update()
  with serve(live, place.host, place.port) as address:
    print_status(
      f"serving {', '.join(request.paths)} at {address} until Ctrl-C"
    )
    while not stop.wait(place.every_s):
      live.update()
