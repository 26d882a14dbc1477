"""Reinforcement learning from verifiable rewards: the main loop.

  python -m azr_jax.train --config=configs/azr.py:tiny --workdir=DIR

The life of a step: collect (sample and grade), advantages, pack, update, log,
save. The same command on the same folder goes on where it was stopped.
"""

import contextlib
import pathlib
import signal
import threading
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from absl import app, flags, logging
from ml_collections import config_flags

from azr_jax import checkpoint as checkpoint_lib
from azr_jax import config as config_lib
from azr_jax import metrics as metrics_lib
from azr_jax import run_folder
from azr_jax.learner import advantages, packing, train_state, update
from azr_jax.models import load
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout import sampler as sampler_lib


def train(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains until `config.train.steps`, resuming what the folder holds.

  Args:
    config: a whole experiment, e.g. `configs.azr.get_config("tiny")`.
    workdir: the run folder; see the README for what it will hold.

  Raises:
    ValueError: a config value is not what its key expects, or the folder
      belongs to a run with another config or in another process.
  """
  config_lib.check_train(config)
  folder = pathlib.Path(workdir).expanduser()
  with run_folder.claim(folder, config):
    _train(config, folder)


def _train(  # noqa: PLR0915 - the main loop reads in one piece.
  config: ml_collections.ConfigDict, folder: pathlib.Path
) -> None:
  # Build.
  mesh = mesh_lib.make_mesh(config.mesh)
  rules = config_lib.sharding_rules(config)
  source = load.resolve(config.model.source, config.model.cache_dir)
  model = config_lib.build_model(config, source.config, mesh)
  optimizer = config_lib.build_optimizer(config)
  shardings = train_state.state_shardings(model, optimizer, mesh, rules)
  state = train_state.make_init_state(optimizer, shardings)(
    source.load_params(mesh, rules)
  )
  ref_params = None
  if config.learner.kl_coef:
    ref_params = jax.tree.map(jnp.copy, state.params)
  loss_fn = config_lib.build_policy_loss(config, model, mesh)
  update_fn = update.make_update(loss_fn, optimizer, shardings, mesh)
  sampler = sampler_lib.Sampler(
    model,
    source.tokenizer,
    config_lib.rollout_mesh(config, mesh),
    rules,
    config_lib.sampler_settings(config),
  )
  micro_rows = mesh_lib.padded_rows(config.learner.micro_rows, mesh)
  sample_key = jax.random.fold_in(jax.random.key(config.seed), 1)

  checkpoints = checkpoint_lib.Checkpointer(
    folder, config.train.keep_checkpoints
  )
  with (
    _watch_for_sigterm() as preempted,
    config_lib.build_executor(config) as executor,
  ):
    system = config_lib.build_system(config, executor)

    # Restore.
    done = checkpoints.latest_step() or 0
    if done:
      state, system_state = checkpoints.restore(
        done, train_state.abstract_state(model, optimizer, shardings)
      )
      system.load_state_dict(system_state)
      metrics_lib.say(f"going on after step {done} of the run in {folder}")
    writer = metrics_lib.MetricsWriter(folder, done + 1)
    progress = metrics_lib.Progress(done + 1, config.train.steps)

    learner_metrics: update.Metrics = {}
    step = done
    for step in range(done + 1, config.train.steps + 1):
      start = time.monotonic()

      # Collect.
      policy = policy_lib.Policy(
        sampler,
        source.tokenizer,
        sampler.compute_params(state.params),
        jax.random.fold_in(sample_key, step),
      )
      collected = system.collect(policy, step)
      collected_at = time.monotonic()

      # Advantages.
      trajectories = collected.trajectories
      values = advantages.estimate(
        config.learner.estimator,
        [t.reward for t in trajectories],
        [t.baseline_group for t in trajectories],
        [len(t.completion.token_ids) for t in trajectories],
      )

      # Pack.
      batch = packing.pack(
        [
          packing.from_trajectory(trajectory, float(advantage))
          for trajectory, advantage in zip(trajectories, values, strict=True)
        ],
        row_length=config.learner.row_length,
        rows_multiple=micro_rows * config.learner.max_micro_batches,
        aggregation=config.learner.aggregation,
      )
      batch = update.to_micro_batches(batch, micro_rows)

      # Update.
      for _ in range(config.learner.epochs):
        state, learner_metrics = update_fn(state, batch, ref_params)
      learned = metrics_lib.to_host(jax.device_get(learner_metrics))

      # Log.
      metrics = collected.metrics | learned
      metrics["time/collect"] = collected_at - start
      metrics["time/update"] = time.monotonic() - collected_at
      metrics["time/step"] = time.monotonic() - start
      writer.write(step, metrics)
      metrics_lib.write_samples(
        folder, step, trajectories, config.train.samples_per_step
      )
      progress.show(step, _summary(metrics))

      # Save.
      last = step == config.train.steps or preempted.is_set()
      if last or step % config.train.save_every == 0:
        checkpoints.save(step, state, system.state_dict())
      if last:
        break
    writer.close()
  checkpoints.close()
  metrics_lib.say(
    f"step {step} is saved in {folder}; to score it: python -m "
    f"azr_jax.evaluate --config=configs/evaluate.py --model={folder} "
    f"--benchmark=programs_heldout --workdir={folder}_scores"
  )


@contextlib.contextmanager
def _watch_for_sigterm() -> Iterator[threading.Event]:
  """An event that SIGTERM (a preemption) sets, while the context lasts."""
  received = threading.Event()
  if threading.current_thread() is not threading.main_thread():
    yield received  # Only the main thread may handle signals.
    return
  previous = signal.signal(signal.SIGTERM, lambda *_: received.set())
  try:
    yield received
  finally:
    signal.signal(signal.SIGTERM, previous)


def _summary(metrics: dict[str, float]) -> str:
  """The few figures worth a line: solver accuracy, valid proposals."""
  correct = [v for k, v in metrics.items() if k.startswith("correct/")]
  valid = [v for k, v in metrics.items() if k.endswith("/valid_share")]
  return (
    f"solved {np.mean(correct or [0]):.0%}  valid {np.mean(valid or [0]):.0%}"
    f"  entropy {metrics['learner/entropy']:.2f}"
  )


def run() -> None:
  """The console script."""
  config = config_flags.DEFINE_config_file("config", None, "The experiment.")
  workdir = flags.DEFINE_string(
    "workdir", None, "The run folder.", required=True
  )
  flags.mark_flag_as_required("config")

  def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)
    train(config.value, workdir.value)

  app.run(main)


if __name__ == "__main__":
  run()
