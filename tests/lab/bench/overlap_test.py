"""Tests of the device that stands idle while conversations await scripts."""

import dataclasses

import pytest

from azr_jax.lab.bench import overlap

# Two conversations of two responses, each of one device call of a second.
LOAD = overlap.Load(
  conversations=2,
  scripts=1,
  response_tokens=10,
  endless_fraction=0.0,
  slots=2,
  token_s=0.05,
  chunk_tokens=20,
  seed=0,
)


def play(**changes):
  load = dataclasses.replace(LOAD, **changes)
  return overlap.simulate(load, overlap.IdealScripts(timeout_s=10.0))


def test_quick_scripts_leave_nothing_idle():
  assert play() == overlap.Usage(seconds=2.0, idle_s=0.0)
  assert play(slots=1) == overlap.Usage(seconds=4.0, idle_s=0.0)
  assert play(conversations=3) == overlap.Usage(seconds=4.0, idle_s=0.0)


def test_endless_scripts_hold_their_slots():
  # Call, ten seconds of waiting, call.
  assert play(endless_fraction=1.0) == overlap.Usage(seconds=12.0, idle_s=10.0)
  # One conversation after the other, because the slot is kept.
  assert play(endless_fraction=1.0, slots=1).idle_s == 20.0
  # The third conversation starts when the first two end.
  assert play(endless_fraction=1.0, conversations=3).seconds == 24.0


def test_a_conversation_hides_the_script_of_another():
  usage = play(
    conversations=6, scripts=9, endless_fraction=0.3, slots=6, seed=1
  )
  alone = [play(conversations=1, scripts=9, endless_fraction=0.3, seed=1)]
  assert usage.idle_fraction < alone[0].idle_fraction


def test_real_scripts_run_in_the_executor(executor):
  backend = overlap.RealScripts(executor)
  usage = overlap.simulate(
    dataclasses.replace(LOAD, scripts=2, token_s=0.005), backend
  )
  assert usage.seconds >= 0.3
  assert len(backend.latencies_s) == 4 and backend.timeouts == 0


def test_real_scripts_end_at_the_limit(executor):
  backend = overlap.RealScripts(executor)
  load = dataclasses.replace(LOAD, endless_fraction=1.0, token_s=0.005)
  usage = overlap.simulate(load, backend)
  assert backend.timeouts == 2
  assert usage.idle_s == pytest.approx(3.0, rel=0.9)  # The executor's limit.
