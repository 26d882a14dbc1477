"""Groups paused by a step's token budget, with a small real model."""

import collections
import functools
import json

import numpy as np
import pytest
from played_steps import STEPS, Maker, Refilled, plain, play
from rollout_model import next_logprobs

from azr_jax.trainer.steps_in_flight import PAUSED_GROUPS

BUDGET = 8
# A sequence of 20 tokens needs three steps.
OLDEST = 2


class Uneven(Refilled):
  """Responses that need one, two or three steps."""

  limits = (5, 20, 3, 12, 6)


class Greedy(Uneven):
  temperature = 0.0


class Long(Refilled):
  """Responses that never end in their first step."""

  temperature = 0.0


# Groups with equal rewards are kept, or replaced.
SYSTEMS = [functools.partial(Uneven, max_prompts=n) for n in (1, 4)]
GREEDY = functools.partial(Greedy, max_prompts=1)


@pytest.fixture(name="make", scope="module")
def make_steps(params, one_device_mesh):
  return Maker(params, one_device_mesh)


# The steps do not overlap.
OPTIONS = dict(max_staleness=0, step_tokens=BUDGET)


def whole(make, make_system=SYSTEMS[0]):
  """Returns the system, rollouts and states of an uninterrupted run."""
  return make.whole(0, make_system, **OPTIONS)


@pytest.mark.parametrize("make_system", SYSTEMS)
def test_every_group_is_in_one_batch_within_the_bound(make, make_system):
  system, batches, states = whole(make, make_system)
  for step, batch in enumerate(batches, 1):
    for trajectory in batch.trajectories:
      versions = trajectory.completion.versions
      assert (np.diff(versions) >= 0).all()
      assert 0 <= step - 1 - versions.max() <= OLDEST
      # A group waits for its longest sequence; the others ended earlier.
      assert step - 1 - versions.min() <= OLDEST
      assert np.bincount(versions).max() <= BUDGET
    groups = collections.Counter(t.group_id for t in batch.trajectories)
    assert {*groups.values()} == {2}
  ages = [batch.metrics["rollout/staleness/max"] for batch in batches]
  assert max(ages) == OLDEST
  # Every prompt is in a batch, dropped for equal rewards, or paused.
  state = json.loads(states[-1])
  paused = [group["item"] for group in state[PAUSED_GROUPS]]
  assert paused
  returned = state["order"].get("returned", [])
  every = system.asked + paused + returned
  assert sorted(every) == list(range(len(every)))


@pytest.mark.parametrize("make_system", SYSTEMS)
def test_a_run_that_was_killed_goes_on_with_its_paused_groups(
  make, make_system
):
  _, batches, states = whole(make, make_system)
  metrics = [batch.metrics for batch in batches]
  for step in range(1, STEPS):
    _, steps = make(0, make_system, **OPTIONS)
    steps.load_state_dict(json.loads(states[step - 1]))
    resumed, last = play(make, steps, first=step + 1)
    assert plain(resumed) == plain(batches[step:])
    assert [batch.metrics for batch in resumed] == metrics[step:]
    assert last[-1] == states[-1]


def test_a_token_keeps_the_log_probability_of_its_own_parameters(make):
  _, batches, _ = whole(make)
  stale = [
    t
    for batch in batches
    for t in batch.trajectories
    if np.ptp(t.completion.versions)
  ]
  assert len(stale) >= 4
  for trajectory in stale:
    prompt, completion = trajectory.prompt.token_ids, trajectory.completion
    ids = [*prompt, *completion.token_ids.tolist()]
    for version in np.unique(completion.versions):
      logprobs = next_logprobs(make.params_before(int(version) + 1), ids)
      logprobs = logprobs[len(prompt) - 1 : -1]
      own = completion.versions == version
      want = logprobs[np.arange(len(own)), completion.token_ids]
      np.testing.assert_allclose(completion.logprobs[own], want[own], atol=2e-5)


def test_greedy_responses_are_those_without_a_budget(params, one_device_mesh):
  """With constant parameters, pauses change no response."""
  make = Maker(params, one_device_mesh, growth=0.0)
  responses = []
  for step_tokens in (BUDGET, 0):
    options = OPTIONS | dict(step_tokens=step_tokens)
    _, batches, states = make.whole(0, GREEDY, **options)
    assert (PAUSED_GROUPS in states[-1]) == (step_tokens > 0)
    every = [t for batch in batches for t in batch.trajectories]
    responses.append(
      {t.prompt.task: t.completion.token_ids.tolist() for t in every}
    )
  partial, whole = responses
  assert sum(len(ids) > BUDGET for ids in partial.values()) >= 4
  assert partial == {position: whole[position] for position in partial}


def test_a_step_in_which_no_group_ends_goes_on(make):
  """An update needs a batch, so all groups get another budget immediately."""
  _, batches, _ = whole(make, Long)
  assert all(batch.trajectories for batch in batches)
  budgets = [batch.metrics["rollout/partial/budgets"] for batch in batches]
  assert budgets[0] > 1


def test_metrics_count_what_is_paused_and_carried_over(make):
  _, batches, states = whole(make)
  carried = paused = []
  for batch, state in zip(batches, states, strict=True):
    metrics = batch.metrics
    groups = json.loads(state).get(PAUSED_GROUPS, [])
    carried, paused = paused, [row for g in groups for row in g["sequences"]]
    waiting = [row for row in paused if row["finish"] is None]
    assert metrics["rollout/partial/paused_groups"] == len(groups)
    assert metrics["rollout/partial/carried_tokens"] == sum(
      len(row["tokens"]) for row in carried
    )
    # Each sequence ended in this step, ended before, or is paused.
    ended = 2 * 4 + len([r for r in carried if r["finish"] is None])
    assert metrics["rollout/partial/paused_fraction"] == pytest.approx(
      len(waiting) / ended
    )
  assert carried
