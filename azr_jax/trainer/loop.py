"""Reinforcement learning from verifiable rewards: the main loop.

The life of a step: collect (sample and grade), shape rewards, estimate
advantages, pack, update, log, save. `opening.py` builds the parts and restores
the newest checkpoint. The same command therefore resumes the run.

The host does not wait for updates. A thread fetches an update's metrics, which
are logged once the next update is dispatched, or before a checkpoint is
written. Sampling does wait, because it needs the new parameters.
"""

import contextlib

import jax

from azr_jax.learner import update
from azr_jax.run import profiling, step_log
from azr_jax.run.session import Run
from azr_jax.trainer.build import Experiment
from azr_jax.trainer.opening import Training, open_training


def train(
  experiment: Experiment,
  run: Run,
  fail_on_recompile: bool = False,
  profile_steps: range = range(0),
) -> None:
  """Trains until the last step, resuming from the run's folder.

  Args:
    experiment: the experiment that `build.build` returned.
    run: an open run.
    fail_on_recompile: whether to stop if a step after the first compiles.
    profile_steps: the steps to write a profiler trace of.

  Raises:
    RuntimeError: a step compiled a program with `fail_on_recompile`; its loss,
      gradients or parameters were not finite; or the hosts of the run do not
      agree.
    TimeoutError: a host did not arrive within `hosts.timeout_s`.
  """
  with open_training(experiment, run) as training:
    batching, speed = experiment.batching, training.speed
    step, first = training.done, training.done + 1
    steps = profiling.profiled(training.steps, profile_steps, run)
    with contextlib.closing(steps):
      for step in steps:
        # Collect; an earlier policy may have begun the step. The block's end
        # frees the sampler's weights, because the update needs the memory.
        with training.in_flight.sampling(training.params, step) as policy:
          scores = training.evals.run(policy, step, run)
          times = speed.begin()
          rollouts, sampled_by = training.in_flight.collect(step)

        # Shape rewards.
        trajectories, shaping_metrics = batching.shape_rewards(
          rollouts.trajectories
        )
        times.collected(trajectories)

        # Estimate advantages. With GAE the update does, from packed rewards.
        trained, group_metrics = batching.drop_equal_groups(trajectories)
        advantages = batching.estimate_advantages(trained)

        # Pack and update. Devices wait while hosts compare their batches.
        batch = batching.pack(trained, advantages, step)
        packed_rows = update.without_padding(batch)
        run.assert_same(f"batch of step {step}", *jax.tree.leaves(packed_rows))
        batch = update.place(batch, experiment.mesh)
        times.send()
        training.state, learner_metrics = experiment.learner.update(
          training.state, batch, training.fixed
        )
        learned = step_log.fetch(learner_metrics)
        del batch, packed_rows  # The next step samples in their place.

        # Log, while the update runs.
        log = sampled_by.sample_log
        flagged = training.monitor.check(
          step, log.completions, trajectories, log.branch_completions
        )
        training.log.write_last()
        styled = training.styles.of_step(step, rollouts.trajectories)
        rollouts.metrics.update(scores | shaping_metrics | group_metrics)
        rollouts.metrics.update(flagged | styled)
        compiled = training.counter.take_expected(
          step, first, fail_on_recompile
        )
        training.log.add(step, rollouts, learned, compiled, times.metrics)

        # Save.
        end = training.saves.at_end_of(step)
        if end.save:
          _save(training, step)
        if end.stop:
          break

    # Score the final policy.
    training.evals.finish(training.params, step, run, training.log)
  run.print_status(experiment.closing_message(run.folder, step))


def _save(training: Training, step: int) -> None:
  """Writes the metrics up to a step, and its checkpoint."""
  training.log.write_last(flush=True)
  training.checkpoints.save(
    step,
    training.state,
    training.in_flight.state_dict(),
    training.log.take_rows(),
  )
