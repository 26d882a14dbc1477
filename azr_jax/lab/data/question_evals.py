"""Resumable passes of a model over questions.

`question_potential.py` estimates pass rates from their records, and
`rejection_sampling.py` chooses conversations from them.
"""

import pathlib
from collections.abc import Iterator, Sequence

from azr_jax.models import tokenizers
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.randomness import keys
from azr_jax.randomness.purposes import Purpose
from azr_jax.run.session import Run
from azr_jax.systems import benchmark_agents
from azr_jax.systems.code_interpreter import measurement
from azr_jax.systems.code_interpreter.measurement import EvalPass
from azr_jax.tasks.questions.question import Question
from azr_jax.tasks.templates import PromptFormat
from azr_jax.trainer import build, loading, scoring, sizes
from azr_jax.trainer.settings import EvaluateSettings


def answer(
  settings: EvaluateSettings,
  model_spec: str,
  step: int | None,
  questions: Sequence[Question],
  eval_passes: Sequence[EvalPass],
  prompt_format: PromptFormat,
  run: Run,
) -> Iterator[tuple[EvalPass, pathlib.Path, Tokenizer]]:
  """Yields each finished pass, its record file, and the tokenizer.

  Args:
    settings: how to sample and grade.
    model_spec: a model spec or run folder.
    step: a run's checkpoint step; None takes the newest.
    questions: the questions of every pass.
    eval_passes: the passes, in order.
    prompt_format: the name of a format, or a user's prompts.
    run: the open folder of the records; questions with a record are skipped.
  """
  scoring.require_same_sandbox(settings, model_spec)
  responses = max(
    len(questions) * eval_pass.samples for eval_pass in eval_passes
  )
  policy = loading.load_policy(
    settings, model_spec, step, lambda _: sizes.Workload(responses)
  )
  policy.tokenizer = tokenizers.dated(policy.tokenizer, run.date)
  with build.build_executor(settings.executor, run.hosts) as executor:
    for number, eval_pass in enumerate(eval_passes):
      path = run.folder / f"{eval_pass.name}.jsonl"
      agent = benchmark_agents.build(
        settings.evaluate,
        eval_pass.agent,
        policy.tokenizer,
        executor,
        run.hosts,
        settings.executor,
        prompt_format,
      )
      key = keys.fold(policy.key, Purpose.PASS_RATES, number)
      with policy.with_key(key, eval_pass.temperature) as answering:
        measurement.run(
          eval_pass,
          questions,
          answering,
          executor,
          run.hosts,
          prompt_format,
          path,
          agent,
          settings.evaluate.arguments,
          run.print_status,
        )
      run.barrier(f"{eval_pass.name} is written")
      run.print_status(
        f"{eval_pass.name} is done ({number + 1} of {len(eval_passes)})"
      )
      yield eval_pass, path, policy.tokenizer
