"""Samples conversations to learn from (R1-CI, section 4.1).

Every question is asked in several forms of prompt. Right and well-formed
conversations are kept, up to a number for each task. The paper took them from
a stronger model; any file of this layout will do.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import ml_collections

from azr_jax.config.settings import Settings, setting
from azr_jax.corpora import demonstrations
from azr_jax.corpora.demonstrations import Trajectory
from azr_jax.data import question_passes
from azr_jax.data.question_passes import Pass
from azr_jax.systems.code_interpreter import agents
from azr_jax.tasks import records
from azr_jax.tasks.questions import prompts, sources
from azr_jax.trainer import scoring
from azr_jax.trainer import settings as train_settings
from azr_jax.trainer.settings import EvaluateSettings

FILE = "trajectories.jsonl"


@dataclasses.dataclass(frozen=True)
class TrajectoriesSettings(Settings):
  """Section `trajectories`: what is sampled and how much is kept."""

  questions: tuple[str, ...] = setting(
    ("questions/train.jsonl",),
    "sources of questions, other ones than those of GRPO",
    needed=True,
  )
  count: int = setting(1_000_000, "most questions of each", at_least=1)
  data_seed: int = setting(0, "root of gym sets", at_least=0)
  forms: tuple[str, ...] = setting(
    ("free", "text_then_code", "code_then_text"),
    "forms of prompt",
    some_of=prompts.FORMS,
    needed=True,
  )
  samples: int = setting(
    4, "conversations about a question, of each form", at_least=1
  )
  per_task: int = setting(
    70, "most conversations that are kept of a task", paper="70", at_least=1
  )
  multi_turn_weight: float = setting(
    3.0, "how much likelier conversations with code are kept", at_least=1
  )


@dataclasses.dataclass(frozen=True)
class RejectionSettings(EvaluateSettings):
  """A configuration of `azr_jax.trajectories`."""

  trajectories: TrajectoriesSettings = TrajectoriesSettings()


def sample(
  config: ml_collections.ConfigDict, model_spec: str, workdir: str
) -> list[Trajectory]:
  """Samples, grades, chooses and writes conversations; returns the chosen.

  Args:
    config: of `configs/trajectories.py`.
    model_spec: a model spec or run folder.
    workdir: where answers and conversations go; may hold some of them.

  Raises:
    ValueError: a config value is not allowed, the folder has answers of
      something else, or no answer is right.
  """
  settings = train_settings.read(RejectionSettings, config)
  c = settings.trajectories
  identity = scoring.asked_of(settings, model_spec)
  with scoring.open_scores(workdir, settings, identity) as run:
    questions = sources.read_all(c.questions, c.count, c.data_seed)
    temperature = settings.rollout.temperature
    passes = [
      Pass(form, agents.CONVERSATION, form, temperature, c.samples)
      for form in c.forms
    ]
    style = settings.evaluate.prompt_style
    right: list[Trajectory] = []
    for one, path, tokenizer in question_passes.answer(
      settings, model_spec, questions, passes, run
    ):
      for record in records.read(str(path)):
        prompt = prompts.ask(record["request"], one.form, style, tokenizer)
        right += _right(record, one.form, prompt)
    chosen = demonstrations.choose(
      right, c.per_task, c.multi_turn_weight, settings.seed
    )
    if not chosen:
      raise ValueError(
        f"no answer of {model_spec} is right: expected some to learn from"
      )
    if run.is_primary:
      demonstrations.write(run.folder / FILE, chosen)
    run.barrier("the conversations are written")
  return chosen


def _right(
  record: dict[str, Any], form: str, prompt: str
) -> Iterator[Trajectory]:
  """Yields the right conversations of a question's record."""
  for correct, finish, text in zip(
    record["correct"], record["finish"], record["replies"], strict=True
  ):
    parts = agents.read_conversation(text) if correct else []
    if finish == "stop" and parts and demonstrations.is_well_formed(parts):
      yield Trajectory(record["id"], record["kind"], form, prompt, tuple(parts))
