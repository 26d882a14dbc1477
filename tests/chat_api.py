"""A scripted server that speaks OpenAI's API."""

import contextlib
import http.server
import json
import threading

from typed import instance_of


class Server(http.server.ThreadingHTTPServer):
  """Answers like OpenAI's server, after failing each request a few times."""

  daemon_threads = True

  def __init__(self, answer, failures=()):
    self.answer, self.failures = answer, list(failures)
    self.requests = []
    super().__init__(("127.0.0.1", 0), Handler)

  @property
  def url(self):
    return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(http.server.BaseHTTPRequestHandler):
  def do_POST(self):
    body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
    server = instance_of(Server, self.server)
    server.requests.append((self.path, self.headers["Authorization"], body))
    if server.failures:
      status = server.failures.pop(0)
      if status == "cut":
        self.connection.close()
        return
      self.reply(status, {"error": {"message": "not now"}})
      return
    self.reply(200, server.answer(body))

  def reply(self, status, content):
    data = json.dumps(content).encode()
    self.send_response(status)
    self.send_header("Content-Length", str(len(data)))
    self.send_header("Retry-After", "0")
    self.end_headers()
    self.wfile.write(data)

  def log_message(self, format, *args): ...


@contextlib.contextmanager
def serving(answer, failures=()):
  server = Server(answer, failures)
  thread = threading.Thread(target=server.serve_forever, daemon=True)
  thread.start()
  try:
    yield server
  finally:
    server.shutdown()
    server.server_close()


def chat(text):
  return {"choices": [{"message": {"role": "assistant", "content": text}}]}
