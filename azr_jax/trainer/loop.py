"""Reinforcement learning from verifiable rewards: the main loop.

The life of a step: collect (sample and grade), advantages, pack, update, log,
save. The same command on the same folder resumes the run.

The host does not wait for an update. A thread fetches its metrics, which are
logged after the next update has been dispatched, or before a checkpoint is
written. Sampling waits, because it needs the new parameters.
"""

import contextlib

import jax

from azr_jax.learner import settings as learner_settings
from azr_jax.learner import update
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.run import compile_counter, profiling, step_log, text_monitor
from azr_jax.run.save_schedule import SaveSchedule
from azr_jax.run.session import Run
from azr_jax.systems.system import System
from azr_jax.trainer import build, ending, restore, steps_in_flight
from azr_jax.trainer.build import Experiment
from azr_jax.trainer.periodic_evals import PeriodicEvals
from azr_jax.trainer.speed import Speed


def run(
  experiment: Experiment,
  run: Run,
  fail_on_recompile: bool = False,
  profile_steps: range = range(0),
) -> None:
  """Trains until the last step, resuming what the run's folder holds.

  Args:
    experiment: what `build.build` made.
    run: an open run.
    fail_on_recompile: stop when a step after the first compiles a program.
    profile_steps: the steps that a trace is written of.

  Raises:
    RuntimeError: a step compiled a program with `fail_on_recompile`, its loss,
      gradients or parameters were not finite, or the hosts of the run do not
      agree.
    TimeoutError: a host did not come in `hosts.timeout_s`.
  """
  settings = experiment.settings.trunk
  learner, sampler = experiment.learner, experiment.sampler
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
      executor, run.hosts, steps_in_flight.rounds(settings.rollout)
    )
    system: System = run.build(
      "system", lambda: experiment.make_system(executor, jobs, run)
    )
    in_flight = experiment.steps_in_flight(system, jobs)
    if done:
      in_flight.load_state_dict(system_state)
    evals = run.build(
      "benchmarks", lambda: PeriodicEvals(experiment, executor, system)
    )
    run.print_status("compiling the sampler; the first step compiles the rest")
    evals.warm_up_samplers(sampler.compute_params(state.params))
    run.barrier("the sampler is compiled")
    log = at_exit.enter_context(
      step_log.StepLog(
        run.folder,
        run.hosts,
        done + 1 + evals.is_finished(run, done),
        settings.train,
        checkpoints.restore_rows(done),
        settings.learner.nonfinite == learner_settings.SKIP,
      )
    )
    monitor = text_monitor.from_settings(
      run.folder, run.is_primary, settings.train
    )
    saves = SaveSchedule(settings.train, run)
    speed = Speed(experiment)
    step, todo = done, range(done + 1, settings.train.steps + 1)
    steps = profiling.profiled(todo, profile_steps, run)
    for step in at_exit.enter_context(contextlib.closing(steps)):
      # Collect. The sampler's copy of the weights is freed at the end of the
      # block, because the update needs the memory.
      with in_flight.sampling(state.params, step) as policy:
        scores = evals.run(policy, step, run)
        lap = speed.begin()
        rollouts, policy = in_flight.collect(policy, step)
      trajectories, shaped = experiment.shape(rollouts.trajectories)
      lap.collected(trajectories)

      # Advantages, and pack.
      batch, packed = experiment.make_batch(trajectories, step)

      # Update.
      run.assert_same(f"batch of step {step}", *jax.tree.leaves(batch))
      batch = update.place(batch, experiment.mesh)
      lap.send()
      state, learner_metrics = learner.update(state, batch, ref_params)
      learned = step_log.fetch(learner_metrics)

      # Log, while the update runs.
      flagged = monitor.look(
        step,
        policy.sampled.replies,
        trajectories,
        extra=policy.sampled.branch_replies,
      )
      rollouts.metrics.update(scores | shaped | packed | flagged)
      log.write_last()
      compiled = counter.take_expected(step, done + 1, fail_on_recompile)
      log.add(step, rollouts, learned, compiled, lap.metrics)

      # Save.
      end = saves.at_end_of(step)
      if end.save:
        log.write_last(flush=True)
        checkpoints.save(step, state, in_flight.state_dict(), log.take_rows())
      if end.stop:
        break

    # Score the final policy.
    evals.finish(state.params, step, run, log)
  run.print_status(ending.last_words(experiment.settings, run.folder, step))
