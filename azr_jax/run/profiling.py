"""Profiles steps of a run into a trace that Perfetto and XProf open.

The trace shows our phases as spans of host threads, next to the programs and
operations of the devices. `jax.profiler.TraceAnnotation` names phases in place,
and `jax.named_scope` names parts of programs.
"""

import contextlib
import re
from collections.abc import Generator, Iterator

import jax

from azr_jax.run import step_log, storage
from azr_jax.run.session import Run

# The folder of traces in a run's folder. TensorBoard and XProf look for
# plugins/profile/TIME/ in it, which has HOST.trace.json.gz for Perfetto.
FOLDER = "profile"
# The name of a step in a trace.
STEP = "step"
_STEPS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def read_steps(text: str, last: int) -> range:
  """Parses `--profile_steps`. "" means no steps.

  Args:
    text: one step, as 3, or a range of steps, as 3-5.
    last: the last step of the run.

  Raises:
    ValueError: the text does not name steps of the run.
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
  """Yields steps, and profiles the chosen ones on the primary host.

  A run that resumes in the middle of the chosen steps profiles the rest. Close
  the iterator: if the loop ends early, that writes the trace so far.

  Args:
    steps: the remaining steps.
    chosen: the steps to profile, from `read_steps`.
    run: the run, whose folder receives the trace.
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
  """Writes a trace of the block to the run's folder.

  If the trace cannot be written, the error is printed and the run continues.
  """
  options = jax.profiler.ProfileOptions()
  # Otherwise every Python function call would be a span.
  options.python_tracer_level = 0
  folder = run.folder / FOLDER
  try:
    # The profiler can only write to a local disk.
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
