"""Episodes in separate processes: turns, failures, and replays."""

import os
import random
import signal
import sys

import pytest

from azr_jax.environments import kits
from azr_jax.environments.client import Episodes
from azr_jax.environments.server import EpisodeServer
from azr_jax.systems.environment import system

GUESS = """
import random, time
import numpy as np
from azr_jax.environments import ToolEnvironment, Turn

class Guess:
  def __init__(self, limit=20):
    self.limit = limit

  def tasks(self):
    return [{"number": number} for number in range(1, self.limit + 1)]

  def begin(self, task):
    self.number, self.tries = task["number"], 0
    return "Guess a number."

  def step(self, reply):
    self.tries += 1
    if reply == "raise":
      raise LookupError("no such reply")
    if reply == "hang":
      time.sleep(60)
    if reply == "nan":
      return Turn(reward=float("nan"), is_done=True)
    if reply == "text":
      return "No."
    if reply == str(self.number):
      return Turn(reward=1.0, is_done=True, metrics={"tries": self.tries})
    hint = random.random() + np.random.rand()
    return Turn(f"No {hint}.", reward=-0.1, metrics={"tries": self.tries})

def price(item: str, count: int = 1) -> float:
  '''Returns a price.

  Args:
    item: what is bought.
  '''
  return {"tea": 2.0}[item] * count

class Shop(ToolEnvironment):
  tools = (price,)
  max_calls = 3

  def tasks(self):
    return [{"answer": "4.0"}]

  def begin(self, task):
    self.answer = task["answer"]
    return "What do two packets of tea cost?"

  def grade(self, reply):
    return float(self.answer in reply)
"""
TASK = {"number": 7}


@pytest.fixture(name="file", scope="module")
def make_file(tmp_path_factory):
  path = tmp_path_factory.mktemp("user") / "guess.py"
  path.write_text(GUESS)
  return path


@pytest.fixture(name="episodes", scope="module")
def play(file):
  made = Episodes(EpisodeServer(f"{file}:Guess(limit=9)"), 1, 1.0)
  yield made
  made.close()


def value(future):
  answer = future.result(60)
  assert not answer.failure, answer.message
  return answer.value


def test_an_episode_is_played_turn_by_turn(episodes):
  assert len(episodes.tasks(0)) == 9 and len(episodes.tasks(4)) == 4
  began = value(episodes.begin(TASK))
  assert began["messages"] == [{"role": "user", "content": "Guess a number."}]
  first = value(episodes.step(TASK, ["3"]))
  assert not first["is_done"] and first["messages"][0]["content"][:3] == "No "
  last = value(episodes.step(TASK, ["3", "7"], first["shown"]))
  assert last["is_done"] and last["reward"] == pytest.approx(0.9)
  assert last["metrics"] == {"tries": 2}
  # The episode is over, so `finish` returns the cached last turn.
  assert value(episodes.finish(TASK, ["3", "7"], False)) == last


def test_a_killed_process_plays_an_episode_again(episodes):
  """A replay sees the same random numbers, whatever was drawn in between."""
  task, replies = {"number": 2}, ["5", "6"]
  shown = value(episodes.step(task, replies[:1]))["shown"]
  second = value(episodes.step(task, replies, shown))
  for process in episodes.processes():
    os.kill(process, signal.SIGKILL)
  random.random()
  value(episodes.step({"number": 3}, ["1"]))
  third = value(episodes.step(task, [*replies, "2"], second["shown"]))
  assert third["is_done"] and third["metrics"] == {"tries": 3}
  again = value(episodes.step(task, replies, shown))
  assert again["messages"] == second["messages"]


@pytest.mark.parametrize(
  "reply, failure, message",
  [
    ("raise", "raised", "LookupError: no such reply (guess.py:20)"),
    ("hang", "timeout", "2"),
    ("text", "raised", "expected a Turn"),
  ],
)
def test_a_failing_turn_fails_alone(episodes, reply, failure, message):
  answer = episodes.step(TASK, [reply]).result(60)
  assert answer.failure == failure and message in answer.message
  assert value(episodes.step(TASK, ["7"]))["is_done"]


def test_a_reward_that_is_no_number_is_a_failure(episodes):
  answer = episodes.finish(TASK, ["nan"], False).result(60)
  score = system._score(answer)
  assert score.failure == "not_finite" and score.value is None


@pytest.mark.parametrize(
  "replies, outputs, reward",
  [
    (["It is 4.0."], [], 1.0),
    (['<tool_call>{"name": "price", "arguments": {"item": "tea", "count": 2}}'
      "</tool_call>", "4.0"], ["4.0"], 1.0),
    (['{"name": "price", "arguments": {"item": 3}}', "5"],
     ["Error: TypeError: argument 'item' is 3: expected {'type': 'string'}"],
     0.0),
    (['{"name": "cost", "arguments": {}}', "4.0"],
     ["Error: no tool 'cost': expected ['price']"], 1.0),
    (['{"name": "price", "arguments": {"item": "oil"}}', "4.0"],
     ["Error: KeyError: 'oil'"], 1.0),
  ],
)  # fmt: skip  # Each case is one tuple.
def test_tools_answer_calls(file, replies, outputs, reward):
  with_tools = EpisodeServer(f"{file}:Shop")
  with_tools.bind({})
  began = with_tools("begin", {"answer": "4.0"})
  parameters = began["tools"][0]["function"]["parameters"]
  assert parameters["required"] == ["item"]
  assert parameters["properties"]["item"]["description"] == "what is bought."
  found, turn = [], {}
  for count in range(1, len(replies) + 1):
    turn = with_tools("step", {"answer": "4.0"}, replies[:count])
    found += [message["content"] for message in turn["messages"]]
  assert found == outputs
  assert turn["is_done"] and turn["reward"] == reward


@pytest.mark.parametrize(
  "spec, problem",
  [
    ("guess", "'guess': expected verifiers:NAME"),
    ("gym:chain_sum(max_terms", "expected verifiers:NAME"),
    ("nothing:Guess", "No module named 'nothing'"),
    ("FILE:Nothing", "no function or class 'Nothing': expected one of ['Guess"),
    ("FILE:Guess(size=3)", "unexpected keyword argument 'size'"),
    ("FILE:price", "tasks is missing: expected a class with"),
    ("gym:gdc", "reasoning-gym has no such set: expected one of its"),
    ("gym:gdc", "such as gcd"),
  ],
)
def test_a_spec_that_cannot_be_loaded_says_why(file, spec, problem):
  with pytest.raises(ValueError) as caught:
    kits.load(spec.replace("FILE", str(file)))
  message = str(caught.value)
  assert problem in message and "\n" not in message


@pytest.mark.parametrize(
  "spec, package, extra",
  [
    ("gem:game:Sudoku-v0-easy", "gem", "gem"),
    ("gym:chain_sum", "reasoning_gym", "gym"),
    ("verifiers:mine", "httpx", "environments"),
    ("verifiers:mine", "verifiers", "environments"),
  ],
)
def test_a_spec_without_its_package_names_the_extra(
  monkeypatch, spec, package, extra
):
  kit = f"azr_jax.environments.{spec.partition(':')[0]}_kit"
  monkeypatch.delitem(sys.modules, kit, raising=False)
  monkeypatch.setitem(sys.modules, package, None)
  with pytest.raises(ValueError) as caught:
    kits.load(spec)
  assert str(caught.value).endswith(
    f"package {package!r} is missing: pip install 'azr_jax[{extra}]'"
  )
