"""Samples conversations for supervised training (R1-CI, section 4.1).

Every question is asked in several solution styles. Correct and well-formed
conversations are kept, up to a limit per task. The paper sampled them from a
stronger model; supervised training reads any file of the same layout.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import ml_collections

from azr_jax.config.settings import Settings, setting
from azr_jax.corpora import demonstrations
from azr_jax.corpora.demonstrations import Demonstration
from azr_jax.evals import record_files
from azr_jax.lab.data import question_evals
from azr_jax.parallel import memory
from azr_jax.systems.code_interpreter import agents
from azr_jax.systems.code_interpreter.measurement import EvalPass
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.questions import prompts, sources
from azr_jax.trainer import scoring, user_prompts
from azr_jax.trainer import settings as train_settings
from azr_jax.trainer.settings import EvaluateSettings

FILE = "trajectories.jsonl"


@dataclasses.dataclass(frozen=True)
class TrajectoriesSettings(Settings):
  """Section `trajectories`: which conversations to sample and keep."""

  questions: tuple[str, ...] = setting(
    ("split:sft",),
    "sources of questions that GRPO does not train on",
    required=True,
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
  solution_styles: tuple[str, ...] = setting(
    ("free", "text_then_code", "code_then_text"),
    "how prompts ask for text and code in a solution",
    subset_of=prompts.SOLUTION_STYLES,
    required=True,
  )
  samples: int = setting(
    4, "conversations per question and solution style", minimum=1
  )
  per_task: int = setting(
    70,
    "maximum number of kept conversations per task",
    paper="70",
    minimum=1,
    expert=True,
  )
  multi_turn_weight: float = setting(
    3.0,
    "weight of a conversation with code; one without code has 1",
    minimum=1,
    expert=True,
  )


@dataclasses.dataclass(frozen=True)
class TrajectoriesRunSettings(EvaluateSettings):
  """A configuration of `azr_jax.trajectories`."""

  trajectories: TrajectoriesSettings = TrajectoriesSettings()


@memory.explained(memory.SAMPLING_KEYS)
def sample(
  config: ml_collections.ConfigDict, model_spec: str, workdir: str
) -> list[Demonstration]:
  """Samples and grades conversations, and writes and returns the chosen ones.

  Args:
    config: a config of `configs/trajectories.py`.
    model_spec: a model spec or run folder.
    workdir: the folder of records and conversations; resumed if it exists.

  Raises:
    ValueError: a config value is not allowed, the folder has records of another
      model or config, or no answer is correct.
  """
  settings = train_settings.read(TrajectoriesRunSettings, config)
  c = settings.trajectories
  settings, templates = user_prompts.read_for_scores(
    settings, workdir, prompts.files_of(c.solution_styles)
  )
  identity = scoring.identity_of(settings, model_spec)
  with scoring.open_scores(workdir, settings, identity) as run:
    questions = sources.read_all(c.questions, c.count, c.data_seed)
    temperature = settings.rollout.temperature
    eval_passes = [
      EvalPass(style, agents.CONVERSATION, style, temperature, c.samples)
      for style in c.solution_styles
    ]
    prompt_format = templates or settings.evaluate.prompt_format
    correct: list[Demonstration] = []
    for eval_pass, path, tokenizer in question_evals.answer(
      settings,
      model_spec,
      identity["step"],
      questions,
      eval_passes,
      prompt_format,
      run,
    ):
      for record in record_files.read(path):
        prompt = prompts.ask(
          record["question"],
          eval_pass.solution_style,
          prompt_format,
          Chat(tokenizer, settings.evaluate.arguments),
        )
        correct += _correct(record, eval_pass.solution_style, prompt)
    chosen = demonstrations.choose(
      correct, c.per_task, c.multi_turn_weight, settings.seed
    )
    if not chosen:
      raise ValueError(
        f"no answer of {model_spec} is correct: expected some to learn from"
      )
    if run.is_primary:
      demonstrations.write(run.folder / FILE, chosen)
    run.barrier("the conversations are written")
  return chosen


def _correct(
  record: dict[str, Any], solution_style: str, prompt: str
) -> Iterator[Demonstration]:
  """Yields the correct and well-formed conversations in a record."""
  for is_correct, finish, text in zip(
    record["correct"], record["finish"], record["responses"], strict=True
  ):
    turns = agents.read_conversation(text) if is_correct else []
    if finish == "stop" and turns and demonstrations.is_well_formed(turns):
      yield Demonstration(
        record["id"], record["subset"], solution_style, prompt, tuple(turns)
      )
