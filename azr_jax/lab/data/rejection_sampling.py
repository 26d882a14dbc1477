"""Samples conversations for supervised training (R1-CI, section 4.1).

Every question is asked in several solution styles. Correct and well-formed
conversations are kept, up to a limit per task. A model samples them here, or a
teacher does behind a server (`teacher.py`), as GPT-4o did for the paper.
Supervised training reads any file of the same layout.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_collections

from azr_jax.config.settings import Settings, setting
from azr_jax.corpora import demonstrations
from azr_jax.corpora.demonstrations import Demonstration
from azr_jax.evals import record_files
from azr_jax.executor.child import libraries
from azr_jax.lab.data import question_evals, teacher
from azr_jax.lab.data.teacher import Teacher, TeacherSettings
from azr_jax.models import load, tokenizers
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel import memory
from azr_jax.run.session import Run
from azr_jax.systems.chat_server import ChatServer
from azr_jax.systems.code_interpreter import agents
from azr_jax.systems.code_interpreter.measurement import EvalPass
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.questions import prompts, sources
from azr_jax.tasks.questions.question import Question
from azr_jax.tasks.templates import PromptFormat
from azr_jax.trainer import build, scoring, user_prompts
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
  teacher: TeacherSettings = TeacherSettings()


@memory.explained(memory.SAMPLING_KEYS)
def sample(
  config: ml_collections.ConfigDict,
  model_spec: str,
  workdir: str,
  environment: Mapping[str, str] | None = None,
) -> list[Demonstration]:
  """Samples and grades conversations, and writes and returns the chosen ones.

  Args:
    config: a config of `configs/trajectories.py`.
    model_spec: a model spec or run folder. With a teacher, the model that will
      learn: its chat template writes the prompts of the conversations.
    workdir: the folder of records and conversations; resumed if it exists.
    environment: where a teacher's API key is; None has none.

  Raises:
    RuntimeError: the teacher's server does not answer.
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
    if settings.teacher.url:
      answered = _taught(
        settings,
        model_spec,
        questions,
        eval_passes,
        prompt_format,
        run,
        environment or {},
      )
    else:
      answered = question_evals.answer(
        settings,
        model_spec,
        identity["step"],
        questions,
        eval_passes,
        prompt_format,
        run,
      )
    correct: list[Demonstration] = []
    order = {question.id: number for number, question in enumerate(questions)}
    for eval_pass, path, tokenizer in answered:
      # The order of the file is that in which answers arrived.
      records = record_files.read(path)
      for record in sorted(records, key=lambda one: order[one["id"]]):
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


def _taught(
  settings: TrajectoriesRunSettings,
  student: str,
  questions: Sequence[Question],
  eval_passes: Sequence[EvalPass],
  prompt_format: PromptFormat,
  run: Run,
  environment: Mapping[str, str],
) -> Iterator[tuple[EvalPass, pathlib.Path, Tokenizer]]:
  """Yields like `question_evals.answer`, with the answers of a teacher.

  The teacher gets the text of the student's prompts, without the markup of the
  student's chat template.

  Raises:
    ValueError: the run has several processes, or the API key is missing.
  """
  c, sandbox = settings.teacher, settings.executor
  c.check_start()
  if run.hosts.count > 1:
    raise ValueError(
      f"config.teacher.url={c.url!r}: expected one process, but "
      f"{run.hosts.count} would ask the same questions"
    )
  libraries.check(sandbox.libraries)
  server = ChatServer(c.url, c.key_variable, c.timeout_s, c.retries)
  key = server.read_key(environment)
  tokenizer = load.resolve(student, settings.model.cache_dir).tokenizer
  tokenizer = tokenizers.dated(tokenizer, run.date)

  def ask(question: str, solution_style: str) -> str:
    return prompts.message(question, solution_style, prompt_format)

  with build.build_executor(sandbox, run.hosts) as executor:
    asked = Teacher(
      server,
      key,
      teacher.request_of(c, settings.rollout.temperature),
      executor,
      libraries=sandbox.libraries,
      script_timeout_s=sandbox.timeout_s,
      max_calls=settings.evaluate.tool.max_calls,
      max_output_chars=c.max_output_chars,
    )
    for eval_pass, path in teacher.answer(
      asked,
      ask,
      questions,
      eval_passes,
      executor,
      run,
      settings.seed,
      c.concurrency,
    ):
      yield eval_pass, path, tokenizer


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
