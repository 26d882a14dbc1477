"""Passes of a model over questions, whose records can be resumed.

`question_potential.py` estimates pass rates from them; `rejection_sampling.py`
chooses conversations from them.
"""

import pathlib
from collections.abc import Iterator, Sequence

import jax

from azr_jax.models.tokenizers import Tokenizer
from azr_jax.run.session import Run
from azr_jax.systems import benchmark_agents
from azr_jax.systems.code_interpreter import measurement
from azr_jax.systems.code_interpreter.measurement import Pass
from azr_jax.tasks.questions.question import Question
from azr_jax.trainer import build, restore, scoring
from azr_jax.trainer.settings import EvaluateSettings


def answer(
  settings: EvaluateSettings,
  model_spec: str,
  step: int | None,
  questions: Sequence[Question],
  passes: Sequence[Pass],
  run: Run,
) -> Iterator[tuple[Pass, pathlib.Path, Tokenizer]]:
  """Yields each pass when it is done, its file of records, and the tokenizer.

  Args:
    settings: how to sample and grade.
    model_spec: a model spec or run folder.
    step: the checkpoint of a run; None: the newest.
    questions: the questions of every pass.
    passes: the passes, in order.
    run: the open folder of the records; questions with a record are skipped.
  """
  scoring.require_same_sandbox(settings, model_spec)
  policy = restore.load_policy(settings, model_spec, step)
  with build.build_executor(settings.executor, run.hosts) as executor:
    for number, pass_ in enumerate(passes):
      path = run.folder / f"{pass_.name}.jsonl"
      measurement.run(
        pass_,
        questions,
        policy.with_key(
          jax.random.fold_in(policy.key, number), pass_.temperature
        ),
        executor,
        run.hosts,
        settings.evaluate.prompt_format,
        path,
        benchmark_agents.build(
          settings.evaluate,
          pass_.agent,
          policy.tokenizer,
          executor,
          run.hosts,
          settings.executor,
        ),
      )
      run.barrier(f"{pass_.name} is written")
      run.print_status(f"{pass_.name} is done ({number + 1} of {len(passes)})")
      yield pass_, path, policy.tokenizer
