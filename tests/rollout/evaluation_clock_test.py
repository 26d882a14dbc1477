"""Evaluations concurrent with steps in flight: each has its own clock.

The model is scripted: one conversation calls a tool early, another writes for
long. The tool answers at once.
"""

import copy
from typing import cast

import jax
import pytest
from rollout_model import ByteTokenizer, new_sampler, page_engine
from typed import present, stand_in

from azr_jax.environments.client import Episodes
from azr_jax.executor import Executor, futures
from azr_jax.executor.job import Result
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.functions.pool import CallResult
from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.weights import Weights
from azr_jax.systems.code_interpreter.settings import CodeInterpreterSettings
from azr_jax.systems.code_interpreter.system import CodeInterpreter
from azr_jax.systems.environment.settings import EnvironmentSettings
from azr_jax.systems.environment.system import EnvironmentSystem
from azr_jax.systems.system import Context
from azr_jax.tasks.questions.question import Question

LONG, SHORT = "long", "short"
BLOCK = "```python\nprint(1)\n```"
SETTINGS = SamplerSettings(
  slots=4,
  prompt_buckets=(16,),
  max_tokens=120,
  prefill_tokens=32,
  page_size=32,
  decode_chunk=4,
  extend_chunk=32,
  stop_strings=(),
  max_staleness=1,
)


class InstantExecutor:
  """An executor whose scripts are done as soon as they are submitted."""

  def submit(self, job):
    return futures.done(Result(job.id, "error", (None,), "1", 0.0))

  def counters(self):
    return {}


class TwoTurns:
  """Episodes of two turns, which record the order in which they end."""

  def __init__(self):
    self.ended = []

  def begin(self, task):
    messages = [{"role": "user", "content": task["prompt"]}]
    return futures.done(CallResult({"messages": messages, "tools": []}))

  def step(self, task, replies, shown):
    messages = [{"role": "user", "content": "and?"}]
    return futures.done(
      CallResult({"messages": messages, "is_done": False, "shown": "1"})
    )

  def finish(self, task, replies, is_cut):
    self.ended.append((task["prompt"], len(replies)))
    return futures.done(
      CallResult({"messages": [], "reward": 1.0, "metrics": {}})
    )


@pytest.fixture(name="training")
def make_training():
  """Returns a system's context in a run with `rollout.max_staleness`."""
  hosts = stand_in(Hosts, count=1, index=0, is_primary=True)
  executor = cast(Executor, InstantExecutor())
  jobs = SharedJobs(executor, hosts, DecodeClock(2))
  return Context(
    seed=0,
    steps=2,
    jobs=jobs,
    executor=executor,
    hosts=hosts,
    tokenizer=ByteTokenizer(),
    sandbox=ExecutorSettings(),
    clock=jobs.clock,
  )


@pytest.fixture(name="policy")
def make_policy(one_device_mesh):
  """Answers one prompt with a call and then an end, the other at length."""

  def next_token(prefix, words, index):
    text = bytes(prefix).decode()
    if text.startswith(LONG):
      return ord("x")
    written = text.removeprefix(SHORT)
    return ord(BLOCK[len(written)]) if len(written) < len(BLOCK) else 0

  sampler = copy.copy(new_sampler(one_device_mesh, SETTINGS))
  engine = page_engine(SETTINGS, num_pages=40)
  engine.next_token = next_token
  sampler._engine = cast(Engine, engine)
  return Policy(sampler, ByteTokenizer(), Weights({}), jax.random.key(0))


@pytest.mark.parametrize("purpose", ["benchmark", "pass_rates"])
def test_the_code_agent_goes_on_while_others_decode(training, policy, purpose):
  settings = CodeInterpreterSettings(
    prompts=1, prompt_format="compact", pass_rate_agents=("code_agent",)
  )
  question = Question("id", "task", "text", "1")
  system = CodeInterpreter(settings, training, [question])
  if purpose == "benchmark":
    agent = present(system.benchmark_agent("questions"))
  else:
    agent = system.make_agents()["code_agent"]
  prompts = [policy.prompt(text) for text in (LONG, SHORT)]
  answers = policy.loop.iterate(agent(policy, prompts, 1, range(2)))
  ended = [
    (prompts[index].text, int((~completion.loss_mask).any()))
    for index, _, completion in answers
  ]
  assert ended == [(SHORT, 1), (LONG, 0)]


def test_an_episode_goes_on_while_others_decode(training, policy, monkeypatch):
  episodes = TwoTurns()
  tasks = [{"prompt": text} for text in (LONG, SHORT)]
  settings = EnvironmentSettings(evaluation_tasks=2, max_turns=2)
  system = EnvironmentSystem(
    settings, training, cast(Episodes, episodes), [], tasks
  )
  # Steps in flight have their own jobs, which count their own calls.
  monkeypatch.setattr(training.jobs, "submit", None)
  scores = policy.run(system.evaluate(policy, limit=0, samples=1))
  assert scores["environment/items"] == 2
  assert episodes.ended == [(SHORT, 2), (LONG, 1)]
