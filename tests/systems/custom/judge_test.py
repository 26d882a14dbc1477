"""A judge behind a local HTTP server."""

import re
import threading

import pytest
from chat_api import chat, serving

from azr_jax.functions import by_value, pool
from azr_jax.functions.spec import Function
from azr_jax.systems.custom.build import build_judge
from azr_jax.systems.custom.judge import JudgeSettings

KEY = "sk-of-this-test"


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
