"""Opens a training run: restores its state and builds its parts."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from azr_jax import types
from azr_jax.executor import Executor
from azr_jax.learner import learner as learner_lib
from azr_jax.learner import settings as learner_settings
from azr_jax.learner.advantages import GAE
from azr_jax.learner.objective import Fixed
from azr_jax.parallel import chips
from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.run import compile_counter, starts, step_log, text_monitor
from azr_jax.run.checkpoint import Checkpointer
from azr_jax.run.save_schedule import SaveSchedule
from azr_jax.run.session import Run
from azr_jax.systems.system import System
from azr_jax.trainer import build, periodic_evals, restore
from azr_jax.trainer.build import Experiment
from azr_jax.trainer.periodic_evals import PeriodicEvals
from azr_jax.trainer.settings import TrainSettings
from azr_jax.trainer.speed import Speed
from azr_jax.trainer.steps_in_flight import StepsInFlight
from azr_jax.trainer.style_metrics import StyleMetrics


@dataclasses.dataclass
class Training:
  """The parts of a run that live until its end.

  Attributes:
    done: the restored step; 0 for a new run.
    steps: the steps after it, up to the last.
    state: the learner's state. Nothing else may hold a reference, because an
      update donates its memory.
    fixed: the parameters that no update changes.
    checkpoints: reads and writes the run's checkpoints.
    in_flight: collects rollouts.
    evals: the benchmarks during training.
    counter: counts compiled programs.
    log: writes metrics and progress.
    monitor: flags sampled texts.
    styles: counts the styles of responses.
    saves: decides when to save and when to stop.
    speed: measures the steps.
  """

  done: int
  steps: range
  state: learner_lib.State
  fixed: Fixed
  checkpoints: Checkpointer
  in_flight: StepsInFlight
  evals: PeriodicEvals
  counter: compile_counter.CompileCounter
  log: step_log.StepLog
  monitor: text_monitor.Monitor
  styles: StyleMetrics
  saves: SaveSchedule
  speed: Speed

  @property
  def params(self) -> types.Params:
    """All parameters of the policy, frozen and trained."""
    return self.fixed.whole(self.state.params)


@contextlib.contextmanager
def open_training(experiment: Experiment, run: Run) -> Iterator[Training]:
  """Opens a new or resumed run, and closes its parts in reverse order.

  Args:
    experiment: the experiment that `build.build` returned.
    run: an open run.

  Raises:
    ValueError: a checkpoint, the initial model, or data of the system is
      missing or damaged.
    RuntimeError: the hosts of the run do not agree.
    TimeoutError: a host did not arrive within `hosts.timeout_s`.
  """
  c = experiment.settings.shared
  train = c.train
  with contextlib.ExitStack() as at_exit:
    # Restore.
    checkpoints = at_exit.enter_context(
      run.open_checkpoints(train.keep_checkpoints, train.checksums)
    )
    done = run.latest_step(checkpoints)
    state, fixed, system_state = restore.training_state(
      experiment, run, checkpoints, done
    )
    run.barrier("the model is loaded")

    # Build.
    executor = at_exit.enter_context(
      build.build_executor(c.executor, run.hosts)
    )
    counter = at_exit.enter_context(compile_counter.count_compiles())
    # Reading times decide which prompts are prefilled together, and so how
    # values are rounded: without the clock, two runs of a seed would differ.
    clock = DecodeClock(c.rollout.verdict_delay_calls)
    jobs = SharedJobs(executor, run.hosts, clock)
    system: System = run.build(
      "system", lambda: experiment.make_system(executor, jobs, run)
    )
    at_exit.callback(system.close)
    in_flight = experiment.steps_in_flight(system, jobs)
    if done:
      in_flight.load_state_dict(system_state)
    evals = run.build(
      "benchmarks",
      lambda: _evals(experiment, executor, system, run.print_status),
    )
    # Only the primary host logs.
    rule = train.style if run.is_primary else ""
    styles = at_exit.enter_context(StyleMetrics.open(rule, run.print_status))
    run.print_status("compiling the sampler; the first step compiles the rest")
    sampler = experiment.sampler
    sampler.warm_up(sampler.compute_params(fixed.whole(state.params)))
    run.barrier("the sampler is compiled")
    # Recorded only now: a run that fails to build leaves its folder free.
    starts.record(run.folder, run.hosts, done)
    first = done + 1 + evals.is_finished(run, done)
    rows = checkpoints.restore_rows(done)
    log = at_exit.enter_context(_step_log(c, run, first, rows))
    training = Training(
      done,
      range(done + 1, train.steps + 1),
      state,
      fixed,
      checkpoints,
      in_flight,
      evals,
      counter,
      log,
      text_monitor.make(
        run.folder, run.is_primary, train.flag_texts, train.flag_classifier
      ),
      styles,
      SaveSchedule(run, train.steps, train.save_every, train.save_minutes),
      build_speed(experiment),
    )
    del state  # See `Training.state`.
    yield training


def _evals(
  experiment: Experiment,
  executor: Executor,
  system: System,
  say: Callable[[str], None],
) -> PeriodicEvals:
  """Reads the benchmarks of a run; see `periodic_evals.build`."""
  c = experiment.settings.shared
  about = system.about(experiment.settings.system_settings)
  return periodic_evals.build(
    c.evaluation,
    executor,
    system,
    experiment.sampler,
    experiment.source.tokenizer,
    experiment.evaluation_key(),
    templates=experiment.settings.templates,
    has_own=about.has_evaluation,
    steps=c.train.steps,
    say=say,
  )


def build_speed(
  experiment: Experiment, chip: chips.Chip | None = None
) -> Speed:
  """Returns the measurement of an experiment's steps, with a running clock.

  Args:
    experiment: the experiment that `build.build` returned.
    chip: as for `Speed`.
  """
  c = experiment.settings.shared
  networks = 2 if c.learner.estimator == GAE else 1
  return Speed(
    experiment.source.config,
    experiment.mesh,
    experiment.sampler,
    dtypes=c.rollout.dtypes(c.model.dtype, c.lora.kernel_dtype),
    has_drafts=c.rollout.speculation.drafts > 0,
    passes=networks * c.learner.epochs,
    chip=chip,
    frozen=c.lora.rank > 0,
  )


def _step_log(
  c: TrainSettings,
  run: Run,
  first_step: int,
  rows: Sequence[dict[str, Any]],
) -> step_log.StepLog:
  """Opens the log of a run; see `step_log.StepLog`."""
  train = c.train
  return step_log.StepLog(
    run.folder,
    run.hosts,
    first_step,
    steps=train.steps,
    samples_per_step=train.samples_per_step,
    show_every=train.show_every,
    trackers=train.trackers,
    rows=rows,
    may_skip=c.learner.nonfinite == learner_settings.SKIP,
  )
