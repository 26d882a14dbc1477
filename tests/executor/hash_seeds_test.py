"""Tests that a job alone determines the hash seeds of its runs."""

import collections
import os
import subprocess
import sys

import pytest
from typed import present

from azr_jax.executor import Executor, Job, hash_seeds


def _job(number, runs):
  return Job("id", f"def f():\n  return {number}", ("",), runs=runs)


@pytest.mark.parametrize("runs, combinations", [(1, 3), (2, 3), (3, 1)])
def test_runs_of_a_job_have_distinct_seeds(runs, combinations):
  counts = collections.Counter()
  for number in range(300):
    seeds = hash_seeds.of_runs(_job(number, runs))
    assert len(set(seeds)) == len(seeds) == runs
    counts[frozenset(seeds)] += 1
  assert len(counts) == combinations
  assert min(counts.values()) > 0.2 * 300


def test_the_seeds_follow_from_the_program_alone():
  code = "def f(x): return x"
  for rules in ((), ("os",)):
    one, same = (Job(i, code, ("1",), forbidden=rules) for i in "ab")
    assert hash_seeds.of_runs(one) == hash_seeds.of_runs(same)


def test_a_program_with_rules_has_the_same_seeds_on_any_input():
  def seeds(rules):
    return {
      tuple(
        hash_seeds.of_runs(Job("", "def f(x): 1", (str(x),), forbidden=rules))
      )
      for x in range(30)
    }

  assert len(seeds(("os",))) == 1 < len(seeds(()))


@pytest.mark.parametrize("workers", range(1, 9))
def test_every_pool_has_every_seed(workers):
  seeds = hash_seeds.of_zygotes(workers)
  counts = collections.Counter(seeds)
  assert set(counts) == set(hash_seeds.HASH_SEEDS)
  assert max(counts.values()) - min(counts.values()) <= 1
  assert len(seeds) == max(3, 2 * workers)


HASHES = [f"def f():\n  return hash('word'), {number}" for number in range(9)]


def test_a_pool_of_another_size_gives_the_same_hashes(executor):
  jobs = [Job(code, code, ("",)) for code in HASHES]
  with Executor(workers=2, timeout_s=2.0, memory_mb=256) as larger:
    outputs = [result.outputs for result in larger.map(jobs)]
  assert [result.outputs for result in executor.map(jobs)] == outputs
  hashes = {present(text).partition(",")[0] for (text,) in outputs}
  assert hashes == {f"({_hash(seed)}" for seed in hash_seeds.HASH_SEEDS}


def _hash(seed):
  command = [sys.executable, "-c", "print(hash('word'))"]
  environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
  return subprocess.check_output(command, text=True, env=environment).strip()


def test_three_runs_find_an_order_that_two_may_miss(executor):
  def found(runs):
    jobs = [
      Job(
        "id", f"def f():\n  return list({{'a{n}', 'b{n}'}})", ("",), runs=runs
      )
      for n in range(60)
    ]
    results = executor.map(jobs)
    return sum(result.status == "nondeterministic" for result in results)

  assert 0.3 * 60 < found(2) < 0.65 * 60 < found(3) < 60
