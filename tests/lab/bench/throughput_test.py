"""Tests that the measurements run the right programs, at any speed."""

import pytest

from azr_jax.executor import Job, dispatch_cost, stall
from azr_jax.lab.bench import throughput

PROGRAMS = [
  throughput.Program(f"def f(x):\n  return x + {n}", "1") for n in range(8)
]


def test_every_case_runs_every_program(executor):
  for name, jobs in throughput.cases(PROGRAMS).items():
    assert len(jobs) == len(PROGRAMS)
    figures = throughput.measure(executor, jobs)
    assert figures["ok_fraction"] == 1.0, name
    rate = figures["evaluations_per_second"] / figures["programs_per_second"]
    assert rate == (throughput.CANDIDATES if name == "judging" else 1)


def test_dispatch_costs_are_of_every_run(monkeypatch):
  monkeypatch.setattr(dispatch_cost, "RUNS", 200)
  monkeypatch.setattr(dispatch_cost, "ALONE", 20)
  costs = dispatch_cost.measure(workers=3)
  assert set(costs) == {"queued_us", "alone_us"}
  assert all(cost > 0 for cost in costs.values())


@pytest.mark.slow
def test_a_run_costs_the_same_beside_2_and_208_workers():
  few, many = (dispatch_cost.measure(workers) for workers in (2, 208))
  for name, cost in many.items():
    assert cost < 2 * few[name], name


def test_hostile_programs_are_compared_to_their_end(monkeypatch, executor):
  monkeypatch.setattr(stall, "SECONDS", 0.1)
  figures = stall.measure(executor, hostile=1)
  assert figures["hostile_ok"] == 1
  assert 0 < figures["median_s"] <= figures["worst_s"]


def test_five_in_256_are_endless():
  jobs = throughput.cases(PROGRAMS * 32)["validation"]
  mixed = throughput.with_endless(jobs)
  loops = {job.code for job in mixed if job.code.startswith(throughput.ENDLESS)}
  assert (len(mixed), len(loops)) == (256, 5)


def test_the_plain_pool_runs_the_same_jobs():
  jobs = throughput.cases(PROGRAMS)["validation"]
  jobs.append(Job("loop", throughput.ENDLESS, ("1",)))
  figures = throughput.measure_plain(1, jobs, timeout_s=0.5)
  assert 0 < figures["programs_per_second"] < len(jobs) / 0.5


def test_the_stages_are_those_of_a_child():
  stages = throughput.breakdown(PROGRAMS)
  assert set(stages) == {
    "fork",
    "layers",
    "compile",
    "run",
    "encode",
    "exit",
    "page_fault",
  }
  assert all(stage["microseconds"] > 0 for stage in stages.values())
