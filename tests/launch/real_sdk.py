"""Asks the local Google Cloud SDK whether it understands commands.

`fixture` starts `sdk_parser.py` once for all tests of a process. A stand-in for
gcloud, which is another process, asks over a socket.
"""

import contextlib
import functools
import json
import os
import pathlib
import shutil
import socketserver
import subprocess
import tempfile
import threading

PROGRAM = pathlib.Path(__file__).with_name("sdk_parser.py")
MISSING = "no Google Cloud SDK is installed here (no gcloud in the PATH)"


def folder():
  """Returns the root of the SDK, or None if there is none."""
  found = shutil.which("gcloud")
  root = pathlib.Path(os.path.realpath(found)).parents[1] if found else None
  return root if root and (root / "lib" / "gcloud.py").is_file() else None


class Parser:
  """The parser of an SDK, in a separate process."""

  def __init__(self, root):
    bundled = root / "platform" / "bundledpythonunix" / "bin" / "python3"
    python = str(bundled) if bundled.exists() else "python3"
    self._config = tempfile.TemporaryDirectory()
    self._process = subprocess.Popen(
      [python, "-S", str(PROGRAM), str(root / "lib")],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      env=_without_python()
      | {
        "CLOUDSDK_CONFIG": self._config.name,
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
        "CLOUDSDK_CORE_DISABLE_FILE_LOGGING": "1",
      },
    )
    self._lock = threading.Lock()
    self.parse = functools.cache(self._ask)

  def _ask(self, words):
    """Returns the parser's status, output and error for a tuple of words."""
    with self._lock:
      assert self._process.stdout
      print(json.dumps(words), file=self._process.stdin, flush=True)
      return tuple(json.loads(self._process.stdout.readline()))

  def close(self):
    """Ends the process."""
    self._process.communicate()
    self._config.cleanup()


def _without_python():
  """Returns the environment without variables for the tests' Python."""
  mine = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
  return {k: v for k, v in os.environ.items() if k not in mine}


@contextlib.contextmanager
def served(parser):
  """Yields the path of a socket that serves a parser."""

  class Handler(socketserver.StreamRequestHandler):
    def handle(self):
      words = tuple(json.loads(self.rfile.readline()))
      self.wfile.write(json.dumps(parser.parse(words)).encode() + b"\n")

  with tempfile.TemporaryDirectory() as place:
    path = f"{place}/socket"
    with socketserver.ThreadingUnixStreamServer(path, Handler) as server:
      thread = threading.Thread(target=server.serve_forever, daemon=True)
      thread.start()
      yield path
      server.shutdown()
      thread.join()
