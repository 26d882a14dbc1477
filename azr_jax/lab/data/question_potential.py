"""Estimates what a model can learn from questions (R1-CI, section 3.3)."""

import dataclasses

import ml_collections

from azr_jax.config.settings import Settings, setting
from azr_jax.curricula.improvement_potential import PassRate
from azr_jax.lab.data import question_evals
from azr_jax.parallel import memory
from azr_jax.systems.code_interpreter import measurement
from azr_jax.systems.code_interpreter.agents import AGENTS
from azr_jax.tasks.questions import pass_rates, prompts, sources
from azr_jax.trainer import scoring, user_prompts
from azr_jax.trainer import settings as train_settings
from azr_jax.trainer.settings import EvaluateSettings

FILE = "pass_rates.jsonl"


@dataclasses.dataclass(frozen=True)
class PotentialSettings(Settings):
  """Section `potential`: agents, questions and temperatures."""

  questions: tuple[str, ...] = setting(
    ("split:train",), "sources of questions", required=True
  )
  count: int = setting(
    1_000_000, "maximum number of questions per source", minimum=1
  )
  data_seed: int = setting(
    0,
    "seed of generated questions",
    minimum=0,
    accepts=sources.TRAINING_SEED,
  )
  agents: tuple[str, ...] = setting(
    AGENTS,
    "agents whose answers are graded",
    paper="four agents",
    subset_of=AGENTS,
    required=True,
  )
  temperatures: tuple[float, ...] = setting(
    measurement.TEMPERATURES,
    "temperatures that each agent answers at",
    paper="five, which it does not name",
    required=True,
    accepts=(lambda v: min(v) > 0, "a tuple of numbers above 0"),
  )


@dataclasses.dataclass(frozen=True)
class PotentialRunSettings(EvaluateSettings):
  """A configuration of `azr_jax.potential`."""

  potential: PotentialSettings = PotentialSettings()


@memory.explained(memory.SAMPLING_KEYS)
def estimate(
  config: ml_collections.ConfigDict, model_spec: str, workdir: str
) -> list[PassRate]:
  """Estimates, writes and returns the pass rate of every question.

  Args:
    config: a config of `configs/potential.py`.
    model_spec: a model spec or run folder.
    workdir: the folder of records and pass rates; resumed if it exists.

  Raises:
    ValueError: a config value is not allowed, or the folder has records of
      another model or config.
  """
  settings = train_settings.read(PotentialRunSettings, config)
  c = settings.potential
  settings, templates = user_prompts.read_for_scores(
    settings, workdir, prompts.files_of(c.agents), agents=c.agents
  )
  identity = scoring.identity_of(settings, model_spec)
  with scoring.open_scores(workdir, settings, identity) as run:
    questions = sources.read_all(c.questions, c.count, c.data_seed)
    eval_passes = measurement.potential_eval_passes(c.agents, c.temperatures)
    answered = question_evals.answer(
      settings,
      model_spec,
      identity["step"],
      questions,
      eval_passes,
      templates or settings.evaluate.prompt_format,
      run,
    )
    rates = measurement.rates(questions, [path for _, path, _ in answered])
    if run.is_primary:
      pass_rates.write(run.folder / FILE, questions, rates)
    run.barrier("the pass rates are written")
  return rates
