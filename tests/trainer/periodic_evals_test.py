"""Evaluations during training: which policy answers the benchmarks."""

import contextlib
import json
import types

import jax
import pytest
from letters import Letters
from typed import stand_in

from azr_jax.evals import runner
from azr_jax.executor import Executor
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.weights import Weights
from azr_jax.run.session import Run
from azr_jax.systems.system import System
from azr_jax.trainer.build import Experiment
from azr_jax.trainer.evaluation_settings import PeriodicSettings
from azr_jax.trainer.periodic_evals import PeriodicEvals


class Recorder(Letters):
  """Records the prompts that it encodes."""

  def __init__(self):
    self.prompts = []

  def encode_prompt(self, text):
    self.prompts.append(text)
    return [0]


def evals_of(settings, key=None, tokenizer=None):
  """Evaluations of a run whose system has no benchmarks of its own."""
  experiment = stand_in(
    Experiment,
    settings=types.SimpleNamespace(
      shared=types.SimpleNamespace(evaluation=settings), system_settings=None
    ),
    evaluation_key=lambda: key,
    source=types.SimpleNamespace(tokenizer=tokenizer or Recorder()),
  )
  system = stand_in(System, about=System.about)
  return PeriodicEvals(experiment, stand_in(Executor), system, [].append)


@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_benchmarks_have_the_temperature_of_evaluations(
  monkeypatch, temperature
):
  settings = PeriodicSettings(
    every=1,
    benchmarks="programs_heldout",
    limit=2,
    prompt_format="compact",
    temperature=temperature,
  )
  key = jax.random.key(7)
  asked = []

  def score(benchmark, policy, *_):
    asked.append(policy)
    return {f"{benchmark.name}/pass@1/unbiased": 0.5}

  monkeypatch.setattr(runner, "run", score)
  evals = evals_of(settings, key)
  sampling = Policy(
    stand_in(Sampler), Letters(), Weights(), jax.random.key(0), temperature=1.0
  )
  run = stand_in(Run, hosts=None, print_status=lambda _: None)
  scores = evals.run(sampling, 1, run)
  assert scores["evaluation/programs_heldout/pass@1/unbiased"] == 0.5
  [policy] = asked
  assert policy.temperature == temperature
  assert (jax.random.key_data(policy.key) == jax.random.key_data(key)).all()


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
  items = runner.items_of(benchmark, how)
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

  monkeypatch.setattr(runner.records_lib, "read", fail)
  with pytest.raises(ValueError, match="evaluation.data=gsm8k=PATH") as refusal:
    evals_of(PeriodicSettings(every=1, benchmarks="gsm8k"))
  assert " --data=" not in str(refusal.value)
