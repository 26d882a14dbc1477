"""Uploads by the real huggingface_hub to a server that imitates the hub."""

import base64
import http.server
import json
import socket
import threading

import huggingface_hub
import pytest
from typed import instance_of

from azr_jax.exports import hub_upload

TOKEN = "hf_of_tests"


class Hub(http.server.BaseHTTPRequestHandler):
  """The requests of an upload. Uploaded files are in `hub.files`."""

  @property
  def hub(self):
    return instance_of(HubServer, self.server)

  def log_message(self, format, *args):
    del format, args

  def _answer(self, value, status=200):
    body = json.dumps(value).encode()
    self.send_response(status)
    self.send_header("Content-Type", "application/json")
    self.send_header("Content-Length", str(len(body)))
    self.end_headers()
    self.wfile.write(body)

  def _body(self):
    if self.headers.get("Transfer-Encoding") == "chunked":
      parts = []
      while size := int(self.rfile.readline(), 16):
        parts.append(self.rfile.read(size))
        self.rfile.readline()
      self.rfile.readline()
      return b"".join(parts)
    return self.rfile.read(int(self.headers.get("Content-Length", 0)))

  def _is_known(self):
    return self.headers.get("Authorization") == f"Bearer {TOKEN}"

  def do_GET(self):
    if not self._is_known():
      self._answer({"error": "Invalid credentials"}, 401)
    elif self.path.startswith("/api/whoami"):
      self._answer({"type": "user", "name": "me", "auth": {}})
    else:
      self._answer({"sha": "0" * 40, "siblings": [], "id": "me/model"})

  def do_POST(self):
    body = self._body()
    if self.path.endswith("/repos/create"):
      self.hub.created = json.loads(body)
      self._answer({"url": f"{self.hub.address}/me/model"})
    elif self.path == "/api/validate-yaml":
      self._answer({"errors": [], "warnings": []})
    elif "/preupload/" in self.path:
      files = json.loads(body)["files"]
      self._answer(
        {
          "files": [
            {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False}
            for f in files
          ]
        }
      )
    elif "/commit/" in self.path:
      for line in body.decode().splitlines():
        record = json.loads(line)
        if record["key"] == "file":
          value = record["value"]
          self.hub.files[value["path"]] = base64.b64decode(value["content"])
        elif record["key"] == "header":
          self.hub.message = record["value"]["summary"]
      url = f"{self.hub.address}/me/model/commit/abc"
      self._answer({"commitUrl": url, "commitOid": "abc"})
    else:
      self._answer({"error": self.path}, 404)


class HubServer(http.server.ThreadingHTTPServer):
  """A hub that stores what it receives."""

  def __init__(self):
    super().__init__(("127.0.0.1", 0), Hub)
    self.files, self.created, self.message = {}, None, None
    self.address = f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture(name="hub")
def make_hub(monkeypatch, tmp_path):
  server = HubServer()
  thread = threading.Thread(target=server.serve_forever)
  thread.start()
  _use(monkeypatch, tmp_path, server.address, TOKEN)
  yield server
  server.shutdown()
  thread.join()
  server.server_close()


def _use(monkeypatch, tmp_path, address, token):
  """Points huggingface_hub to an address, with a token unless it is ""."""
  monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
  monkeypatch.setattr(
    huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "no_token")
  )
  monkeypatch.setattr(huggingface_hub.hf_api.api, "endpoint", address)
  monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
  monkeypatch.setenv("HF_TOKEN", token)


def test_a_folder_s_files_are_uploaded_and_no_others(hub, tmp_path):
  folder = tmp_path / "model"
  folder.mkdir()
  files = {
    "README.md": b"# card",
    "config.json": b"{}",
    "model.safetensors": bytes(range(256)),
    "chat_template.jinja": b"{{ x }}",
    "model.gguf": b"GGUF",
  }
  for name, data in (files | {"notes.private": b"mine"}).items():
    (folder / name).write_bytes(data)
  hub_upload.check("me/model")
  address = hub_upload.push(folder, "me/model", True, "Export run")
  assert hub.files == files
  assert (hub.created["organization"], hub.created["name"]) == ("me", "model")
  # Older versions of huggingface_hub send `private`.
  assert hub.created.get("visibility") == "private" or hub.created["private"]
  assert hub.message == "Export run" and address.endswith("/commit/abc")


@pytest.mark.parametrize("name", ["model", "a/b/c", "me/..", "me/a b"])
def test_a_name_of_another_form_is_refused(hub, name):
  with pytest.raises(ValueError, match=r"--push_to=.*: expected OWNER/NAME"):
    hub_upload.check(name)


def test_without_a_token_nothing_is_asked(monkeypatch, tmp_path):
  _use(monkeypatch, tmp_path, "http://127.0.0.1:1", "")
  with pytest.raises(ValueError, match="expected a token .* HF_TOKEN"):
    hub_upload.check("me/model")


def test_a_token_that_the_hub_does_not_know_is_one_line(
  hub, monkeypatch, tmp_path
):
  _use(monkeypatch, tmp_path, hub.address, "hf_other")
  with pytest.raises(ValueError, match="the hub refuses") as caught:
    hub_upload.check("me/model")
  assert "\n" not in str(caught.value)


def test_without_a_network_the_error_says_so(monkeypatch, tmp_path):
  with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
  _use(monkeypatch, tmp_path, f"http://127.0.0.1:{port}", TOKEN)
  with pytest.raises(
    ValueError, match="cannot be reached .*expected a network"
  ):
    hub_upload.check("me/model")
