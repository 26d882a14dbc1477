"""Supervised training on the procedural program corpus.

  python -m azr_jax.sft --config=configs/sft.py:azr_tiny --workdir=DIR

The life of the data: programs are drawn and checked by the executor, written
as conversations into an array_record data source, tokenised, packed into
rows in an order fixed by the seed, and learned. At the end the folder
`DIR/model` holds the model in Hugging Face layout.
"""

import pathlib
import time

import jax
import ml_collections
import numpy as np
from absl import app, flags, logging
from ml_collections import config_flags

from azr_jax import checkpoint as checkpoint_lib
from azr_jax import config as config_lib
from azr_jax import host_flags, run_folder, types
from azr_jax import metrics as metrics_lib
from azr_jax.learner import packing, train_state, update
from azr_jax.models import (
  presets,
  safetensors_io,
  tokenizers,
  transformer,
)
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.hosts import Hosts
from azr_jax.tasks.programs.corpus import dataset
from azr_jax.tasks.programs.corpus import tokenizer as tokenizer_lib


def train(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains a preset from scratch until `config.train.steps`, resuming.

  Raises:
    ValueError: a config value is not what its key expects, or the folder
      belongs to a run with another config or in another process.
  """
  config_lib.check_sft(config)
  folder = pathlib.Path(workdir).expanduser()
  hosts = Hosts(config.hosts.timeout_s)
  with run_folder.claim(folder, config, hosts):
    _train(config, folder, hosts)


def _train(
  config: ml_collections.ConfigDict, folder: pathlib.Path, hosts: Hosts
) -> None:
  # The first host builds what the others then find.
  built, error = None, None
  if hosts.first:
    try:
      built = _prepare_data(config, folder)
    except Exception as caught:  # noqa: BLE001 - every host must hear of it.
      error = caught
  hosts.raise_together("corpus", error)
  rows, tokenizer = built or _prepare_data(config, folder)
  hosts.check_same("the corpus", rows.tokens)

  mesh = mesh_lib.make_mesh(config.mesh)
  model = config_lib.build_model(
    config,
    presets.PRESETS[config.model.source.removeprefix("preset:")],
    mesh,
  )
  optimizer = config_lib.build_optimizer(config)
  shardings = train_state.state_shardings(
    model, optimizer, mesh, config_lib.sharding_rules(config)
  )
  init = jax.jit(
    lambda key: transformer.init_params(model, key),
    out_shardings=shardings.params,
  )
  state = train_state.make_init_state(optimizer, shardings)(
    init(jax.random.key(config.seed))
  )
  update_fn = update.make_update(
    update.make_supervised_loss(
      model, chunk_tokens=config.learner.chunk_tokens, mesh=mesh
    ),
    optimizer,
    shardings,
    mesh,
  )
  checkpoints = checkpoint_lib.Checkpointer(
    folder, config.train.keep_checkpoints
  )
  done = checkpoints.latest_step() or 0
  if done:
    state, _ = checkpoints.restore(
      done, train_state.abstract_state(model, optimizer, shardings)
    )
  micro_rows = mesh_lib.padded_rows(config.learner.micro_rows, mesh)
  writer = metrics_lib.MetricsWriter(folder, done + 1) if hosts.first else None
  progress = metrics_lib.Progress(done + 1, config.train.steps)
  for step in range(done + 1, config.train.steps + 1):
    start = time.monotonic()
    batch = update.place(_batch(rows, step - 1, micro_rows), mesh)
    state, metrics = update_fn(state, batch, None)
    learned = metrics_lib.to_host(jax.device_get(metrics))
    learned["time/step"] = time.monotonic() - start
    if writer is not None:
      writer.write(step, learned)
    if step % 10 == 0 and hosts.first:
      progress.show(step, f"nll {learned['learner/nll']:.4f}")
    if step % config.train.save_every == 0 or step == config.train.steps:
      checkpoints.save(step, state, {})
  checkpoints.close()
  if writer is not None:
    writer.close()
  model_folder = folder / "model"
  safetensors_io.save(
    state.params,
    model.config,
    model_folder,
    dtype="float16",
    eos_ids=tokenizer.eos_ids,
    write=hosts.first,
  )
  if hosts.first:
    tokenizer.save(model_folder)
    metrics_lib.say(f"the model is in {model_folder}")
  hosts.meet("the model is written")


def _prepare_data(
  config: ml_collections.ConfigDict, folder: pathlib.Path
) -> tuple[types.Batch, tokenizers.Tokenizer]:
  """Builds or finds corpus and tokenizer; returns all rows, packed."""
  c = config.corpus
  with config_lib.build_executor(config) as executor:
    source = dataset.load(
      seed=c.seed,
      count=c.count,
      settings=config_lib.corpus_settings(config),
      executor=executor,
      data_dir=folder / "corpus",
    )
  path = folder / "tokenizer" / "tokenizer.model"
  if not path.exists():
    texts = (source[i] for i in range(c.tokenizer_samples))
    tokenizer_lib.train_tokenizer(
      (_text(r, "prompt") + _text(r, "reply") for r in texts), path.parent
    )
  tokenizer = tokenizers.SentencePieceTokenizer(path)
  order = np.random.default_rng((config.seed, 1)).permutation(len(source))
  sequences = []
  for index in order:
    record = source[int(index)]
    prompt = tokenizer.encode(_text(record, "prompt"))
    reply = [*tokenizer.encode(_text(record, "reply")), *tokenizer.eos_ids]
    if len(prompt) + len(reply) - 1 <= config.learner.row_length:
      sequences.append(_sequence(prompt, reply))
  return _pack_in_order(sequences, config), tokenizer


def _text(record: dict[str, bytes], field: str) -> str:
  return record[field].decode("utf-8")


def _sequence(prompt: list[int], reply: list[int]) -> packing.Sequence1D:
  ids = np.asarray(prompt + reply, np.int32)
  mask = np.arange(len(ids)) >= len(prompt)
  return packing.Sequence1D(ids, mask, 0.0, np.zeros(len(ids), np.float32))


def _pack_in_order(
  sequences: list[packing.Sequence1D], config: ml_collections.ConfigDict
) -> types.Batch:
  """Packs groups of a few steps' worth, so that order stays shuffled."""
  c = config.learner
  mean = np.mean([len(s.token_ids) for s in sequences])
  group = max(1, int(4 * c.micro_rows * c.row_length / mean))
  rng = np.random.default_rng((config.seed, 2))
  packed = []
  for first in range(0, len(sequences), group):
    batch = packing.pack(
      sequences[first : first + group],
      row_length=c.row_length,
      rows_multiple=1,
      aggregation=c.aggregation,
    )
    shuffle = rng.permutation(len(batch.tokens))
    packed.append(jax.tree.map(lambda x, s=shuffle: x[s], batch))
  return jax.tree.map(lambda *parts: np.concatenate(parts), *packed)


def _batch(rows: types.Batch, index: int, count: int) -> types.Batch:
  """Step `index`'s rows as one micro-batch; the epoch repeats at the end."""
  places = np.arange(index * count, (index + 1) * count) % len(rows.tokens)
  batch = jax.tree.map(lambda x: x[places], rows)
  weights = batch.loss_mask / max(batch.loss_mask.sum(), 1)
  batch = batch.replace(loss_weights=weights)
  return update.to_micro_batches(batch, count)


def run() -> None:
  """The console script."""
  config = config_flags.DEFINE_config_file("config", None, "The experiment.")
  workdir = flags.DEFINE_string(
    "workdir", None, "The run folder.", required=True
  )
  join = host_flags.define()
  flags.mark_flag_as_required("config")

  def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)
    join()
    train(config.value, workdir.value)

  app.run(main)


if __name__ == "__main__":
  run()
