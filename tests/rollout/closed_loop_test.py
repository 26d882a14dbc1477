"""Overlapping steps of Countdown whose policy proposes puzzles."""

import json

import pytest
from played_steps import STEPS, Maker, plain, play
from typed import stand_in

from azr_jax.curricula.adaptive import Adaptive, AdaptiveSettings
from azr_jax.curricula.curriculum import Buckets
from azr_jax.executor import Executor
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.hosts import Hosts
from azr_jax.systems.countdown.settings import CountdownSettings
from azr_jax.systems.countdown.sources import PROPOSED, Sources
from azr_jax.systems.countdown.system import Countdown
from azr_jax.systems.system import Context
from azr_jax.tasks.countdown import difficulty, generator, prompts

GIVEN = [Puzzle((number + 1, 20, 30), number + 51) for number in range(30)]
# Few, so that overlapping steps propose the same ones.
PROPOSALS = [
  puzzle
  for puzzle in (Puzzle((7, n, 2), 9 + n) for n in range(10, 60))
  if not generator.is_test(puzzle)
][:12]


def closed_loop(jobs):
  buckets = Buckets(
    (*difficulty.BUCKETS, PROPOSED), [n // 10 for n in range(30)]
  )
  settings = CountdownSettings(
    prompts=4, group_size=2, proposals=4, curriculum="adaptive"
  )
  context = Context(
    0,
    STEPS,
    jobs,
    stand_in(Executor),
    stand_in(Hosts),
    stand_in(Tokenizer),
    stand_in(ExecutorSettings),
  )
  rules = AdaptiveSettings(warmup_steps=1, epsilon=0.5)
  curriculum = Adaptive(buckets, **vars(rules))
  return Countdown(settings, context, Sources([GIVEN], buckets, curriculum))


@pytest.fixture(name="short_texts")
def use_short_texts(monkeypatch):
  """Prompts that a small model takes, and a puzzle in every response."""

  def parse(text, prompt_format):
    del prompt_format
    return PROPOSALS[sum(map(ord, text)) % len(PROPOSALS)]

  monkeypatch.setattr(prompts, "solve_prompt", lambda p, _: f"{p.target}")
  monkeypatch.setattr(prompts, "propose_prompt", lambda *_: "p")
  monkeypatch.setattr(prompts, "parse_proposal", parse)


@pytest.mark.parametrize("staleness", [1, 2])
def test_a_killed_run_proposes_the_same_puzzles(
  params, one_device_mesh, short_texts, staleness
):
  del short_texts
  make = Maker(params, one_device_mesh)
  _, batches, states = make.whole(staleness, closed_loop)
  metrics = [batch.metrics for batch in batches]
  size = "buffer/countdown/proposed/size"
  proposed = [tuple(map(str, p)) for p in json.loads(states[-1])["own"]]
  assert len({*proposed}) == len(proposed) == metrics[-1][size] > 2
  assert sum("count/countdown/propose" in one for one in metrics) > 1
  for step in range(1, STEPS):
    _, steps = make(staleness, closed_loop)
    steps.load_state_dict(json.loads(states[step - 1]))
    resumed, last = play(make, steps, first=step + 1)
    assert plain(resumed) == plain(batches[step:])
    assert [batch.metrics for batch in resumed] == metrics[step:]
    assert last[-1] == states[-1]
