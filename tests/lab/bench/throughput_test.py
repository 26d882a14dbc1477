"""Tests that the measurements run the right programs, at any speed."""

from azr_jax.executor import Job
from azr_jax.lab.bench import throughput

PROGRAMS = [
  throughput.Snippet(f"def f(x):\n  return x + {n}", "1") for n in range(8)
]


def test_every_case_runs_every_program(executor):
  for name, jobs in throughput.cases(PROGRAMS).items():
    assert len(jobs) == len(PROGRAMS)
    figures = throughput.measure(executor, jobs)
    assert figures["ok_fraction"] == 1.0, name
    rate = figures["evaluations_per_second"] / figures["programs_per_second"]
    assert rate == (throughput.CANDIDATES if name == "judging" else 1)


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
