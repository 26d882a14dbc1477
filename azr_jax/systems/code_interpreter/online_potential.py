"""Pass rates for online curricula, measured with the policy before a stage.

The life of a measurement:
1. Its folder, `potential/stage_N` in the run's records, identifies the
   parameters that answer. Records of other parameters or passes are removed
   (`run/records.py`).
2. Every pass writes one record per question to its file, as in
   `azr_jax.potential`. A run that was killed resumes with the next question
   when it reaches the stage again.
3. The rates are written to `pass_rates.jsonl` in the same folder. Offline
   curricula can read this file.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from azr_jax.curricula.improvement_potential import PassRate
from azr_jax.randomness import keys
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout.policy import Agent, Policy
from azr_jax.run.records import MeasurementFiles
from azr_jax.systems.code_interpreter import measurement
from azr_jax.systems.code_interpreter.measurement import EvalPass
from azr_jax.systems.system import Context
from azr_jax.tasks.questions import pass_rates, prompts
from azr_jax.tasks.questions.question import Question
from azr_jax.tasks.templates import PromptFormat, Templates
from azr_jax.types import Params

FOLDER = "potential"
RATES = "pass_rates.jsonl"


def estimate(
  policy: Policy,
  questions: Sequence[Question],
  eval_passes: Sequence[EvalPass],
  agents: Mapping[str, Agent],
  prompt_format: PromptFormat,
  context: Context,
  stage: int,
  template_arguments: Mapping[str, Any],
) -> list[PassRate]:
  """Measures how often the policy solves each question.

  Args:
    policy: the policy to measure. Its key and call count do not change.
    questions: the questions of the run.
    eval_passes: the agents and temperatures to sample with.
    agents: the agents of the passes, by name.
    prompt_format: one of `prompts.PROMPT_FORMATS`, or a user's prompts.
    context: the resources of the run, with its records.
    stage: the stage that is about to start.
    template_arguments: extra arguments of the chat template, by name.
  """
  identity = {
    "params": _fingerprint(policy.params),
    "questions": _digest(questions),
    "passes": [eval_pass.name for eval_pass in eval_passes],
    "prompt_format": prompt_format.digest_of(prompts.FILES)
    if isinstance(prompt_format, Templates)
    else prompt_format,
  }
  with context.records.folder(f"{FOLDER}/stage_{stage}", identity) as files:
    for number, eval_pass in enumerate(eval_passes):
      path = files.path / f"{eval_pass.name}.jsonl"
      key = keys.fold(policy.key, Purpose.PASS_RATES, number)
      with policy.with_key(key, eval_pass.temperature) as answering:
        measurement.run(
          eval_pass,
          questions,
          answering,
          context.executor,
          context.hosts,
          prompt_format,
          path,
          agents[eval_pass.agent],
          template_arguments,
          context.say,
        )
      files.keep(path.name)
    return _write_rates(context, questions, eval_passes, files)


def _write_rates(
  context: Context,
  questions: Sequence[Question],
  eval_passes: Sequence[EvalPass],
  files: MeasurementFiles,
) -> list[PassRate]:
  """Returns the rates on every host; only the primary sees the records."""

  def read() -> str:
    paths = [
      files.path / f"{eval_pass.name}.jsonl" for eval_pass in eval_passes
    ]
    found = measurement.rates(questions, paths)
    pass_rates.write(files.path / RATES, questions, found)
    files.keep(RATES)
    return json.dumps([[rate.num_correct, rate.num_samples] for rate in found])

  text = context.hosts.from_primary("the pass rates of a stage", read)
  return [PassRate(*numbers) for numbers in json.loads(text)]


def _fingerprint(params: Params) -> str:
  """Returns a hash that identifies the parameters."""

  @jax.jit
  def total(leaves: list[jax.Array]) -> list[jax.Array]:
    return [
      jnp.sum(jnp.abs(leaf.astype(jnp.float32)) * (index + 1))
      for index, leaf in enumerate(leaves)
    ]

  sums = jax.device_get(total(jax.tree.leaves(params)))
  text = " ".join(float(value).hex() for value in sums)
  return hashlib.sha256(text.encode()).hexdigest()


def _digest(questions: Sequence[Question]) -> str:
  text = json.dumps([[question.id, question.text] for question in questions])
  return hashlib.sha256(text.encode()).hexdigest()
