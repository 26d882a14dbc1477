"""Tests the measurement of host time between calls, at a small size."""

import argparse

import pytest

from azr_jax.lab.bench.commands import host


def run(command, *arguments):
  parser = argparse.ArgumentParser()
  command.add_flags(parser)
  return command.measure(parser.parse_args(arguments))


@pytest.mark.parametrize("stop_strings", [(), ("--stop_strings", "</answer>")])
def test_every_completion_is_played_on_an_engine_without_a_device(stop_strings):
  """Calls and iterations follow from the lengths alone."""
  found = run(
    host,
    "--model=embedded:azr-tiny",
    *("--prompts=6", "--samples=2", "--slots=12", "--decode_chunk=4"),
    *("--prompt_tokens=8", "--lengths=equal:10", "--max_tokens=16"),
    *stop_strings,
  )
  assert (found["calls"], found["iterations"]) == (3, 10)
  assert found["live_fraction"] == 1
  assert 0 < found["mean_s"] <= found["p99_s"] < 60


def test_slots_of_several_devices_turn_over():
  """24 sequences of three calls take two turns on 12 slots of two devices."""
  found = run(
    host,
    "--model=embedded:azr-tiny",
    *("--prompts=12", "--samples=2", "--slots=12", "--devices=2"),
    *("--prompt_tokens=8", "--lengths=equal:10", "--max_tokens=16"),
    *("--decode_chunk=4", "--prefill_tokens=64"),
  )
  assert (found["calls"], found["live_fraction"]) == (6, 1)
  # Five calls follow another one, and the fourth follows a turnover.
  assert 0 < found["turnover_s"] <= 5 * found["host_s"]
