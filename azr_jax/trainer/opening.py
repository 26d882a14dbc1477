"""Opens a training run: restores its state and builds its parts."""

import contextlib
import dataclasses
from collections.abc import Iterator

from azr_jax import types
from azr_jax.learner import learner as learner_lib
from azr_jax.learner import settings as learner_settings
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.run import compile_counter, starts, step_log
from azr_jax.run.checkpoint import Checkpointer
from azr_jax.run.session import Run
from azr_jax.systems.system import System
from azr_jax.trainer import build, restore, steps_in_flight
from azr_jax.trainer.build import Experiment
from azr_jax.trainer.periodic_evals import PeriodicEvals
from azr_jax.trainer.steps_in_flight import StepsInFlight


@dataclasses.dataclass
class Training:
  """The parts of a run that live until its end.

  Attributes:
    done: the restored step; 0 for a new run.
    state: the learner's state. Nothing else may hold a reference, because an
      update donates its memory.
    ref_params: the reference parameters of the KL penalty; None without one.
    checkpoints: reads and writes the run's checkpoints.
    in_flight: collects rollouts.
    evals: the benchmarks during training.
    counter: counts compiled programs.
    log: writes metrics and progress.
  """

  done: int
  state: learner_lib.State
  ref_params: types.Params | None
  checkpoints: Checkpointer
  in_flight: StepsInFlight
  evals: PeriodicEvals
  counter: compile_counter.CompileCounter
  log: step_log.StepLog


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
  settings = experiment.settings.shared
  with contextlib.ExitStack() as at_exit:
    # Restore.
    checkpoints = at_exit.enter_context(
      run.open_checkpoints(
        settings.train.keep_checkpoints, settings.train.checksums
      )
    )
    done = run.latest_step(checkpoints)
    state, ref_params, system_state = restore.training_state(
      experiment, run, checkpoints, done
    )
    run.barrier("the model is loaded")

    # Build.
    executor = at_exit.enter_context(
      build.build_executor(settings.executor, run.hosts)
    )
    counter = at_exit.enter_context(compile_counter.count_compiles())
    jobs = SharedJobs(
      executor, run.hosts, steps_in_flight.decode_clock(settings.rollout)
    )
    system: System = run.build(
      "system", lambda: experiment.make_system(executor, jobs, run)
    )
    at_exit.callback(system.close)
    in_flight = experiment.steps_in_flight(system, jobs)
    if done:
      in_flight.load_state_dict(system_state)
    evals = run.build(
      "benchmarks", lambda: PeriodicEvals(experiment, executor, system)
    )
    run.print_status("compiling the sampler; the first step compiles the rest")
    sampler = experiment.sampler
    sampler.warm_up(sampler.compute_params(state.params))
    run.barrier("the sampler is compiled")
    # Recorded only now: a run that fails to build leaves its folder free.
    starts.record(run.folder, run.hosts, done)
    log = at_exit.enter_context(
      step_log.StepLog(
        run.folder,
        run.hosts,
        done + 1 + evals.is_finished(run, done),
        steps=settings.train.steps,
        samples_per_step=settings.train.samples_per_step,
        show_every=settings.train.show_every,
        trackers=settings.train.trackers,
        rows=checkpoints.restore_rows(done),
        may_skip=settings.learner.nonfinite == learner_settings.SKIP,
      )
    )
    training = Training(
      done, state, ref_params, checkpoints, in_flight, evals, counter, log
    )
    del state  # See `Training.state`.
    yield training
