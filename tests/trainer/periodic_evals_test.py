"""Evaluations during training: which policy answers the benchmarks."""

import contextlib
import json

import jax
import pytest
from letters import Letters
from typed import stand_in

from azr_jax.evals import items as items_lib
from azr_jax.evals import runner
from azr_jax.executor import Executor
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.weights import Weights
from azr_jax.run.session import Run
from azr_jax.systems.system import System
from azr_jax.trainer import periodic_evals
from azr_jax.trainer.evaluation_settings import PeriodicSettings


class Recorder(Letters):
  """Records the prompts that it encodes."""

  def __init__(self):
    self.prompts = []

  def encode_prompt(self, text):
    self.prompts.append(text)
    return [0]


def evals_of(settings, key=None, tokenizer=None):
  """Evaluations of a run whose system has no benchmarks of its own."""
  return periodic_evals.build(
    settings,
    stand_in(Executor),
    stand_in(System),
    stand_in(Sampler),
    tokenizer or Recorder(),
    jax.random.key(0) if key is None else key,
    templates=None,
    has_own=False,
    steps=1,
    say=[].append,
  )


def policies_asked(monkeypatch, temperature=1.0):
  """Returns the policy that each of two benchmarks samples from, by name."""
  settings = PeriodicSettings(
    every=1,
    benchmarks="programs_heldout,countdown",
    limit=2,
    prompt_format="compact",
    temperature=temperature,
  )
  asked = {}

  def score(benchmark, policy, *_):
    asked[benchmark.name] = policy
    return {f"{benchmark.name}/pass@1/unbiased": 0.5}

  monkeypatch.setattr(runner, "run", score)
  evals = evals_of(settings, jax.random.key(7))
  sampling = Policy(
    stand_in(Sampler), Letters(), Weights(), jax.random.key(0), temperature=1.0
  )
  run = stand_in(Run, hosts=None, print_status=lambda _: None)
  scores = evals.run(sampling, 1, run)
  assert scores["evaluation/programs_heldout/pass@1/unbiased"] == 0.5
  return asked


@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_benchmarks_have_the_temperature_of_evaluations(
  monkeypatch, temperature
):
  asked = policies_asked(monkeypatch, temperature)
  assert [one.temperature for one in asked.values()] == [temperature] * 2


def test_benchmarks_have_keys_of_their_own_that_stay(monkeypatch):
  """Items of the same number must not share random numbers."""
  first, again = (
    {name: one.key for name, one in policies_asked(monkeypatch).items()}
    for _ in range(2)
  )
  data = {name: jax.random.key_data(key) for name, key in first.items()}
  assert (data["countdown"] != data["programs_heldout"]).any()
  for name, key in again.items():
    assert (jax.random.key_data(key) == data[name]).all()


def test_a_start_writes_a_prompt_of_each_subset():
  tokenizer = Recorder()
  settings = PeriodicSettings(
    every=1,
    benchmarks="programs_heldout",
    limit=5,
    prompt_format="compact",
  )
  evals = evals_of(settings, tokenizer=tokenizer)
  [(benchmark, how)] = evals._benchmarks.items()
  items = items_lib.items_of(benchmark, how)
  assert len(items) == 5 * len({item.subset for item in items})
  assert 5 * len(tokenizer.prompts) == len(items)


@pytest.mark.parametrize(
  "name, row, refused",
  [
    ("cruxeval_o", {"id": 1, "code": "f", "input": "", "output": ""}, False),
    ("gsm8k", {"question": "1+1?", "answer": "#### 2"}, True),
  ],
)
def test_a_format_that_a_benchmark_lacks_is_told_before_the_run(
  tmp_path, name, row, refused
):
  data = tmp_path / "rows.jsonl"
  data.write_text(json.dumps(row) + "\n")
  settings = PeriodicSettings(
    every=1, benchmarks=name, data=str(data), prompt_format="compact"
  )
  expected = contextlib.nullcontext()
  if refused:
    expected = pytest.raises(ValueError, match=f"{name}: prompt_format 'comp")
  with expected:
    evals_of(settings)


def test_a_benchmark_that_cannot_be_read_names_the_key_of_its_file(monkeypatch):
  """A run has no flag `--data`, which evaluate's message suggests."""

  def fail(spec):
    raise ValueError(f"{spec} cannot be downloaded")

  monkeypatch.setattr(items_lib.records_lib, "read", fail)
  with pytest.raises(ValueError, match="evaluation.data=gsm8k=PATH") as refusal:
    evals_of(PeriodicSettings(every=1, benchmarks="gsm8k"))
  assert " --data=" not in str(refusal.value)
