"""Sweeps of a model's answers to questions, in files that can be resumed.

The measurement of improvement potential (`question_potential.py`) and the
choice of conversations to learn from (`rejection_sampling.py`) are made of
these.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import jax

from azr_jax.evals import questions as benchmark_lib
from azr_jax.evals import runner
from azr_jax.evals.benchmark import Benchmark, Grade, Item
from azr_jax.executor import Executor
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout import policy as policy_lib
from azr_jax.run.session import Run
from azr_jax.systems.code_interpreter import agents
from azr_jax.tasks.questions import prompts
from azr_jax.tasks.questions.question import Question
from azr_jax.trainer import build, restore, scoring
from azr_jax.trainer.settings import EvaluateSettings


@dataclasses.dataclass(frozen=True)
class Pass:
  """One pass over all questions.

  Attributes:
    name: name of its file.
    agent: one of `agents.AGENTS`, or `agents.CONVERSATION`.
    form: what the prompts ask for, one of `prompts.FORMS`.
    temperature: of sampling.
    samples: answers to each question.
  """

  name: str
  agent: str
  form: str
  temperature: float
  samples: int


def answer(
  settings: EvaluateSettings,
  model_spec: str,
  questions: Sequence[Question],
  passes: Sequence[Pass],
  run: Run,
) -> Iterator[tuple[Pass, pathlib.Path, Tokenizer]]:
  """Yields each pass when it is done, its file of records, and the tokenizer.

  Passes of one temperature should follow one another, because each temperature
  compiles functions of its own.

  Args:
    settings: how to sample and grade.
    model_spec: a model spec or run folder.
    questions: what to ask.
    passes: which agents answer, and how often.
    run: the open folder of the records, which are resumed.
  """
  loaded = restore.load_for_sampling(settings, model_spec)
  tokenizer = loaded.source.tokenizer
  items = [benchmark_lib.item(question) for question in questions]
  sampler = None
  with build.build_executor(settings.executor) as executor:
    for number, one in enumerate(passes):
      rollout = dataclasses.replace(
        settings.rollout, temperature=one.temperature
      )
      if sampler is None or sampler.settings != rollout:
        sampler = loaded.make_sampler(
          dataclasses.replace(settings, rollout=rollout)
        )
      policy = policy_lib.Policy(
        sampler,
        tokenizer,
        sampler.compute_params(loaded.params),
        jax.random.fold_in(jax.random.key(settings.seed), number),
      )
      path = run.folder / f"{one.name}.jsonl"
      style = settings.evaluate.prompt_style
      runner.run(
        _benchmark(one, items),
        policy,
        executor,
        run.hosts,
        runner.RunSettings("", 0, style, one.samples),
        path,
        scoring.build_agent(settings, one.agent, tokenizer, executor, run),
      )
      run.barrier(f"{one.name} is written")
      run.say(f"{one.name} is done ({number + 1} of {len(passes)})")
      yield one, path, tokenizer


def _benchmark(one: Pass, items: list[Item]) -> Benchmark:
  """Returns what to ask in a pass, and how to grade it."""

  def grade(executor: Executor, item: Item, text: str) -> "Future[Grade]":
    if one.agent == agents.CONVERSATION:
      text = agents.read_conversation(text)[-1]
    return benchmark_lib.grade(executor, item, text)

  return Benchmark(
    one.name,
    "",
    lambda data: items,
    "words",
    grade,
    prompt=lambda item, style, tokenizer: prompts.ask(
      item.request, one.form, style, tokenizer
    ),
    reads_by_name=True,
    by_kind=True,
  )
