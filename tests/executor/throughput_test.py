"""The measurements measure what they say; no figure is asserted."""

from azr_jax.executor import throughput

PROGRAMS = [
  throughput.Program(f"def f(x):\n  return x + {n}", "1") for n in range(8)
]


def test_every_case_runs_every_program(executor):
  for name, jobs in throughput.cases(PROGRAMS).items():
    assert len(jobs) == len(PROGRAMS)
    found = throughput.measure(executor, jobs)
    assert found["ok_share"] == 1.0, name
    rate = found["evaluations_per_second"] / found["programs_per_second"]
    assert rate == (throughput.CANDIDATES if name == "judging" else 1)


def test_five_in_256_are_endless():
  jobs = throughput.cases(PROGRAMS * 32)["validation"]
  mixed = throughput.with_endless(jobs)
  loops = sum(job.code == throughput.ENDLESS for job in mixed)
  assert (len(mixed), loops) == (256, 5)


def test_the_plain_pool_runs_the_same_jobs():
  jobs = throughput.cases(PROGRAMS)["validation"]
  assert throughput.measure_plain(1, jobs)["programs_per_second"] > 0
