"""Supervised training on a procedural corpus of conversations.

  python -m azr_jax.sft --config=configs/sft.py:azr_tiny --workdir=DIR

The life of the data: conversations are written (`config.data` says about what),
tokenised, packed into rows in an order fixed by the seed, and learned, by a
model from scratch with a tokenizer of its own, or by one that is loaded. At the
end the folder `DIR/model` holds the model in Hugging Face layout.
"""

import pathlib
import time

import jax
import ml_collections
import numpy as np
from absl import app, flags, logging
from ml_collections import config_flags

from azr_jax import types
from azr_jax.cli import host_flags
from azr_jax.corpora.corpus import Corpus
from azr_jax.learner import learner as learner_lib
from azr_jax.learner import packing, update
from azr_jax.models import load, presets, safetensors_io, tokenizers
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.hosts import Hosts
from azr_jax.run import checkpoint as checkpoint_lib
from azr_jax.run import folder as run_folder
from azr_jax.run import metrics as metrics_lib
from azr_jax.trainer import build as parts
from azr_jax.trainer import checks, experiment


def train(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains until `config.train.steps`, resuming what the folder holds.

  Raises:
    ValueError: a config value is not what its key expects, or the folder
      belongs to a run with another config or in another process.
  """
  checks.check_sft(config)
  folder = pathlib.Path(workdir).expanduser()
  hosts = Hosts(config.hosts.timeout_s)
  with run_folder.claim(folder, config, hosts):
    _train(config, folder, hosts)


def _train(
  config: ml_collections.ConfigDict, folder: pathlib.Path, hosts: Hosts
) -> None:
  # The first host builds what the others then find.
  rows, source = hosts.primary_first(
    "corpus", lambda: _prepare_data(config, folder)
  )
  hosts.assert_equal_arrays("the corpus", rows.tokens)

  mesh = mesh_lib.make_mesh(config.mesh)
  rules = parts.sharding_rules(config)
  model = parts.build_model(config, source.config, mesh)
  optimizer = parts.build_optimizer(config)
  loss_fn = update.make_supervised_loss(
    model, chunk_tokens=config.learner.chunk_tokens, mesh=mesh
  )
  learner = learner_lib.make(model, loss_fn, optimizer, mesh, rules)
  state = learner.init(source.load_params(mesh, rules))
  checkpoints = checkpoint_lib.Checkpointer(
    folder, config.train.keep_checkpoints
  )
  done = checkpoints.latest_step() or 0
  if done:
    state, _ = checkpoints.restore(done, learner.abstract)
  micro_rows = mesh_lib.padded_rows(config.learner.micro_rows, mesh)
  writer = (
    metrics_lib.MetricsWriter(folder, done + 1) if hosts.is_primary else None
  )
  progress = metrics_lib.Progress(done + 1, config.train.steps)
  for step in range(done + 1, config.train.steps + 1):
    start = time.monotonic()
    batch = update.place(_batch(rows, step - 1, micro_rows), mesh)
    state, metrics = learner.update(state, batch, None)
    learned = metrics_lib.to_host(jax.device_get(metrics))
    learned["time/step"] = time.monotonic() - start
    if writer is not None:
      writer.write(step, learned)
    if step % 10 == 0 and hosts.is_primary:
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
    dtype=config.train.model_dtype,
    eos_ids=source.tokenizer.eos_ids,
    write=hosts.is_primary,
  )
  if hosts.is_primary:
    source.tokenizer.save(model_folder)
    metrics_lib.say(f"the model is in {model_folder}")
  hosts.barrier("the model is written")


def _prepare_data(
  config: ml_collections.ConfigDict, folder: pathlib.Path
) -> tuple[types.Batch, load.ModelSource]:
  """Builds or finds corpus and tokenizer; returns all rows, packed."""
  corpus = experiment.build_corpus(config, folder / "corpus")
  source = _starting_point(config, corpus, folder / "tokenizer")
  tokenizer = source.tokenizer
  conversations = corpus.conversations
  order = np.random.default_rng((config.seed, 1)).permutation(
    len(conversations)
  )
  sequences = []
  for index in order.tolist():
    ids, learned = conversations[index].tokens(
      tokenizer.encode, tokenizer.eos_ids[0]
    )
    if len(ids) - 1 <= config.learner.row_length:
      sequences.append(_sequence(ids, learned))
  return _pack_in_order(sequences, config), source


def _starting_point(
  config: ml_collections.ConfigDict, corpus: Corpus, folder: pathlib.Path
) -> load.ModelSource:
  """A preset from scratch with its own tokenizer, or what is loaded."""
  kind, _, name = config.model.source.partition(":")
  if kind != "preset":
    return load.resolve(config.model.source, config.model.cache_dir)
  path = folder / "tokenizer.model"
  if not path.exists():
    shown = corpus.conversations[: config.data.tokenizer_samples]
    texts = (one.prompt + "".join(one.parts) for one in shown)
    corpus.train_tokenizer(texts, folder)
  return load.ModelSource(
    presets.PRESETS[name],
    tokenizers.SentencePieceTokenizer(path),
    load.random_params(presets.PRESETS[name], config.seed),
  )


def _sequence(ids: list[int], learned: list[bool]) -> packing.TrainingExample:
  return packing.TrainingExample(
    np.asarray(ids, np.int32),
    np.asarray(learned, bool),
    0.0,
    np.zeros(len(ids), np.float32),
  )


def _pack_in_order(
  sequences: list[packing.TrainingExample], config: ml_collections.ConfigDict
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
    chosen = config.value  # Whether it can be read, before others wait.
    join()
    train(chosen, workdir.value)

  app.run(main)


if __name__ == "__main__":
  run()
