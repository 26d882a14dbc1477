"""A judge behind a local HTTP server."""

import contextlib
import http.server
import json
import re
import threading

import pytest
from typed import instance_of

from azr_jax.functions import by_value, pool
from azr_jax.functions.spec import Function
from azr_jax.systems.custom.build import build_judge
from azr_jax.systems.custom.judge import JudgeSettings

KEY = "sk-of-this-test"


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


def ask(settings, count=1):
  """Judges completions in a worker process."""
  judge = build_judge(settings, 8)
  function = Function("judge", data=by_value.dumps(judge))
  with pool.FunctionPool([function], 1, judge.limit_s) as made:
    calls = [
      made.submit(0, {"prompt": "Add 1", "completion": str(i), "answer": "2"})
      for i in range(count)
    ]
    return [call.result(200) for call in calls]


def test_it_asks_with_the_key_and_reads_the_last_grade(monkeypatch):
  monkeypatch.setenv("KEY_OF_TEST", KEY)

  def answer(body):
    return chat("Not score: 9. Good.\nScore: 7.5")

  with serving(answer) as server:
    settings = JudgeSettings(
      url=server.url,
      model="m",
      template="{prompt}|{completion}|{answer}",
      key_variable="KEY_OF_TEST",
    )
    [found] = ask(settings)
  assert found.value == {"reward": 0.75, "requests": 1.0}
  [(path, key, body)] = server.requests
  assert (path, key) == ("/v1/chat/completions", f"Bearer {KEY}")
  assert body["messages"] == [{"role": "user", "content": "Add 1|0|2"}]
  assert body["model"] == "m" and body["temperature"] == 0
  assert KEY not in repr(settings)


def test_a_busy_server_is_asked_again():
  failures = [503, "cut", 429]
  with serving(lambda body: chat("Score: 10"), failures) as server:
    [found] = ask(JudgeSettings(url=server.url, retries=3))
  assert found.value == {"reward": 1.0, "requests": 4.0}


def test_many_are_judged_beside_each_other():
  barrier = threading.Barrier(8)  # Needs eight concurrent requests.

  def answer(body):
    barrier.wait(60)
    return chat("Score: 5")

  with serving(answer) as server:
    found = ask(JudgeSettings(url=server.url), count=16)
  assert [one.value["reward"] for one in found] == [0.5] * 16


@pytest.mark.parametrize(
  "answer, failures, more, message",
  [
    (chat("fine"), [], {}, "no grade in 'fine': see judge.pattern"),
    (chat("Score: 11"), [], {}, "grade 11: expected one from 0 to 10"),
    ({"x": 1}, [], {}, "expected an answer of /chat/completions"),
    (chat(""), [401], {}, "HTTP 401 .*not now"),
    (chat(""), [500] * 9, {"retries": 1}, "no answer to 2 requests: HTTP 500"),
    (
      chat(""),
      [],
      {"template": "{gold}"},
      "cannot be filled .KeyError: 'gold'",
    ),
  ],
)
def test_what_goes_wrong_is_one_line(answer, failures, more, message):
  with serving(lambda body: answer, failures) as server:
    [found] = ask(JudgeSettings(url=server.url, **more))
  assert found.failure == "raised"
  assert re.search(message, found.message) and "\n" not in found.message


def test_a_reward_model_answers_with_one_number():
  answer = {"data": [{"embedding": [-1.25]}]}
  with serving(lambda body: answer) as server:
    [found] = ask(JudgeSettings(url=server.url, endpoint="embeddings"))
  assert found.value["reward"] == -1.25
  assert server.requests[0][0] == "/v1/embeddings"


def test_without_the_key_nothing_is_asked(monkeypatch):
  monkeypatch.delenv("KEY_OF_TEST", raising=False)
  settings = JudgeSettings(url="http://127.0.0.1:9", key_variable="KEY_OF_TEST")
  with pytest.raises(ValueError, match="KEY_OF_TEST is not set"):
    ask(settings)
