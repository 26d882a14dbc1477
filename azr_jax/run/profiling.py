"""Profiles some steps of a run: a trace that Perfetto and XProf open.

The trace has our phases as spans of the host's threads, beside the programs and
operations of the devices. Phases are named where they are, by
`jax.profiler.TraceAnnotation`, and parts of programs by `jax.named_scope`.
"""

import contextlib
import re
from collections.abc import Generator, Iterator

import jax

from azr_jax.run import step_log, storage
from azr_jax.run.session import Run

# The folder of traces in a run's folder; TensorBoard and XProf look in
# plugins/profile/TIME/ there, which has HOST.trace.json.gz for Perfetto.
FOLDER = "profile"
# The name of a step in a trace.
STEP = "step"
_STEPS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def read_steps(text: str, last: int) -> range:
  """Returns the steps that `--profile_steps` names; none for "".

  Args:
    text: a step, as 3, or the first and the last of some, as 3-5.
    last: the last step of the run.

  Raises:
    ValueError: it names no steps of the run.
  """
  if not text:
    return range(0)
  match = _STEPS.fullmatch(text)
  first = int(match[1]) if match else 0
  end = int(match[2] or match[1]) if match else 0
  if not 1 <= first <= end <= last:
    raise ValueError(
      f"--profile_steps={text}: expected steps such as 3 or 3-5, from 1 to "
      f"config.train.steps={last}"
    )
  return range(first, end + 1)


def profiled(
  steps: range, chosen: range, run: Run
) -> Generator[int, None, None]:
  """Yields steps, and profiles those that are chosen, on the primary host.

  A run that resumes among the chosen steps profiles those that are left. If the
  loop ends before the last of them, the trace has those that it did; so close
  the iterator.

  Args:
    steps: the steps that are still to do.
    chosen: what `read_steps` returned.
    run: the run, whose folder gets the trace.
  """
  left = [step for step in steps if step in chosen]
  if chosen and not left:
    run.print_status(
      f"steps {chosen[0]} to {chosen[-1]} are done: nothing is profiled"
    )
  trace = contextlib.ExitStack()
  try:
    for step in steps:
      if left and step == left[0] and run.is_primary:
        trace.enter_context(_traced(run))
      with jax.profiler.StepTraceAnnotation(STEP, step_num=step):
        yield step
      if left and step == left[-1]:
        trace.close()
  finally:
    trace.close()


@contextlib.contextmanager
def _traced(run: Run) -> Iterator[None]:
  """Writes a trace of its block to the run's folder.

  A trace that cannot be written is reported, because the run can do without.
  """
  options = jax.profiler.ProfileOptions()
  # Every call of a Python function would be a span.
  options.python_tracer_level = 0
  folder = run.folder / FOLDER
  try:
    # The profiler writes to this machine alone.
    with storage.upload_on_exit(folder) as here:
      jax.profiler.start_trace(here, profiler_options=options)
      try:
        yield
      finally:
        step_log.await_fetches()  # The last update may still be running.
        jax.profiler.stop_trace()
  except (OSError, RuntimeError) as error:
    run.print_status(f"{folder} is not written: {error}")
    return
  run.print_status(
    f"the trace is in {folder}: open its HOST.trace.json.gz in "
    "https://ui.perfetto.dev, or the folder in xprof"
  )
