"""Passes of a model over questions, whose records can be resumed.

`question_potential.py` estimates pass rates from them; `rejection_sampling.py`
chooses conversations from them.
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
    name: the name of its file of records.
    agent: one of `agents.AGENTS`, or `agents.CONVERSATION`.
    form: the form of the prompts, one of `prompts.FORMS`.
    temperature: divides the logits.
    samples: number of responses per question.
  """

  name: str
  agent: str
  form: str
  temperature: float
  samples: int


def answer(
  settings: EvaluateSettings,
  model_spec: str,
  step: int | None,
  questions: Sequence[Question],
  passes: Sequence[Pass],
  run: Run,
) -> Iterator[tuple[Pass, pathlib.Path, Tokenizer]]:
  """Yields each pass when it is done, its file of records, and the tokenizer.

  Passes of one temperature should follow one another, because the sampler's
  functions are compiled again for another temperature.

  Args:
    settings: how to sample and grade.
    model_spec: a model spec or run folder.
    step: the checkpoint of a run; None: the newest.
    questions: the questions of every pass.
    passes: the passes, in order.
    run: the open folder of the records; questions with a record are skipped.
  """
  scoring.require_same_sandbox(settings, model_spec)
  loaded = restore.load_for_sampling(settings, model_spec, step)
  tokenizer = loaded.source.tokenizer
  items = [benchmark_lib.item(question) for question in questions]
  sampler, params = None, None
  with build.build_executor(settings.executor, run.hosts) as executor:
    for number, pass_ in enumerate(passes):
      rollout = dataclasses.replace(
        settings.rollout, temperature=pass_.temperature
      )
      if sampler is None or sampler.settings != rollout:
        sampler = loaded.make_sampler(
          dataclasses.replace(settings, rollout=rollout)
        )
      if params is None:  # The temperature does not change them.
        params = sampler.compute_params(loaded.params)
      policy = policy_lib.Policy(
        sampler,
        tokenizer,
        params,
        jax.random.fold_in(jax.random.key(settings.seed), number),
      )
      path = run.folder / f"{pass_.name}.jsonl"
      prompt_format = settings.evaluate.prompt_format
      runner.run(
        _benchmark(pass_, items),
        policy,
        executor,
        run.hosts,
        runner.RunSettings("", 0, prompt_format, pass_.samples),
        path,
        scoring.build_agent(settings, pass_.agent, tokenizer, executor, run),
      )
      run.barrier(f"{pass_.name} is written")
      run.print_status(f"{pass_.name} is done ({number + 1} of {len(passes)})")
      yield pass_, path, tokenizer


def _benchmark(pass_: Pass, items: list[Item]) -> Benchmark:
  """Returns a benchmark of the items, prompted and graded as a pass says."""

  def grade(executor: Executor, item: Item, text: str) -> "Future[Grade]":
    if pass_.agent == agents.CONVERSATION:
      text = agents.read_conversation(text)[-1]
    return benchmark_lib.grade(executor, item, text)

  return Benchmark(
    pass_.name,
    "",
    lambda data: items,
    "words",
    grade,
    prompt=lambda item, prompt_format, tokenizer: prompts.ask(
      item.request, pass_.form, prompt_format, tokenizer
    ),
    opens_data=True,
    limit_per_subset=True,
  )
