"""The loop of supervised training.

The life of the data:
1. A corpus generates conversations.
2. They are tokenized, with a tokenizer trained on them (for a model from
   scratch) or with the loaded model's tokenizer.
3. They are packed into rows, in an order fixed by the seed.
4. Each step trains on the next rows or conversations (`sft_batches.py`). The
   loss is the mean over the tokens that the model should write.
"""

import contextlib
import pathlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from azr_jax import types
from azr_jax.corpora import registry as corpora
from azr_jax.corpora.corpus import Corpus
from azr_jax.learner import learner as learner_lib
from azr_jax.learner import objective, packing, update
from azr_jax.learner import settings as learner_settings
from azr_jax.learner.optimizer import make_optimizer
from azr_jax.learner.rounding import Draws
from azr_jax.models import (
  load,
  peft_io,
  rope,
  safetensors_io,
  transformer,
)
from azr_jax.parallel import memory
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.run import console, nonfinite, sigterm, starts, storage
from azr_jax.run import metrics as metrics_lib
from azr_jax.run.save_schedule import SaveSchedule
from azr_jax.run.session import Run
from azr_jax.run.trackers import Trackers
from azr_jax.trainer import (
  build,
  decoders,
  frozen,
  loading,
  messages,
  sft_batches,
  sft_plan,
  sizes,
  speed,
)
from azr_jax.trainer.settings import (
  SupervisedExperimentSettings,
  SupervisedTrainSettings,
)
from azr_jax.trainer.sft_batches import Batches

# Steps between progress lines.
_PROGRESS_STEPS = 10


@memory.explained(memory.TRAINING_KEYS)
def train(settings: SupervisedExperimentSettings, run: Run) -> None:
  """Trains until the last step and writes the model."""
  c = settings.shared
  # Checked before a model is downloaded.
  mesh = decoders.learner_mesh(c)
  batches, source = run.build("corpus", lambda: _prepare(settings, run))
  run.assert_same("the corpus", batches.tokens)
  c = sft_plan.keep(c, batches.per_epoch, run)
  if c.lora.adapters is not None:
    # Refused before training.
    peft_io.check(source.config, c.lora.adapters)
    source.peft_base()

  model, learner = _build_learner(c, source, mesh)
  rules = c.sharding.rules()
  sizes.check_update(
    c.learner,
    source.config,
    learner.abstract,
    mesh,
    memory.available_bytes(),
    may_choose=not sft_plan.has_trained(run),
    base=learner.base,
  )
  chip = speed.chip_of(mesh)
  with run.open_checkpoints(
    c.train.keep_checkpoints, c.train.checksums
  ) as checkpoints:
    done = run.latest_step(checkpoints)
    base_dtype = c.lora.matrix_dtype(c.model.dtype)
    base = frozen.load_base(source, model, base_dtype, mesh, rules)
    frozen.pin(base, frozen.Origin(c.model.source), run)
    fixed = objective.Fixed(base)
    if done:
      state, _ = checkpoints.restore(done, learner.abstract)
    else:
      trained = frozen.load_trained(source, model, mesh, rules, c.seed)
      state = learner.init(trained)
    starts.record(run.folder, run.hosts, done)
    every = c.train.save_every, c.train.save_minutes
    saves = SaveSchedule(run, c.train.steps, *every)
    logged = checkpoints.restore_rows(done)
    with _Log(run, done + 1, c, logged) as log:
      steps = range(done + 1, c.train.steps + 1)
      placed = _placed(batches, steps, mesh)
      following = next(placed, None)
      for step in steps:
        start = time.monotonic()
        assert following is not None
        lengths, batch = following
        state, metrics = learner.update(state, batch, fixed)
        following = next(placed, None)  # While the update runs.
        values = metrics_lib.to_host(jax.device_get(metrics))
        seconds = time.monotonic() - start
        values |= {"time/step": seconds} | speed.update_metrics(
          source.config,
          lengths,
          1,
          seconds,
          mesh.size,
          chip,
          model.lora is not None,
        )
        log.write(step, values)
        done = step
        end = saves.at_end_of(step)
        if end.save:
          checkpoints.save(step, state, {}, log.take_rows())
        if end.stop:
          break
  if done < c.train.steps:
    run.print_status(
      f"{sigterm.STOPPED}: the same command resumes after step {done}"
    )
    return
  _write_model(c, state.params, source, run)


def _placed(
  batches: Batches, steps: Iterable[int], mesh: Mesh
) -> Iterator[tuple[list[int], types.Batch]]:
  """Yields the lengths and the batch of each step, on the devices."""
  for step in steps:
    chosen = batches.of_step(step - 1)
    yield _lengths(chosen), update.place(chosen, mesh)


def _build_learner(
  c: SupervisedTrainSettings, source: load.ModelSource, mesh: Mesh
) -> tuple[transformer.Transformer, learner_lib.Learner]:
  """Returns the decoder and its learner."""
  rules = c.sharding.rules()
  model = decoders.build_model(
    *(c.model, rope.for_length(source.config, c.learner.row_length)),
    *(mesh, rules),
    rows=c.learner,
    sampler_bytes=0.0,
    state_size=decoders.state_size(c.model, c.optimizer),
    lora=c.lora,
  )
  loss_fn = objective.make_supervised_loss(
    model, chunk_tokens=c.learner.chunk_tokens, mesh=mesh
  )
  return model, learner_lib.make(
    model,
    loss_fn,
    make_optimizer(**vars(c.optimizer), draws=Draws(c.seed)),
    mesh,
    rules,
    options=c.compiler.options(mesh),
    base_dtype=c.lora.matrix_dtype(c.model.dtype),
    seed=c.seed,
  )


class _Log:
  """Writes metrics and progress, on the primary host only."""

  def __init__(
    self,
    run: Run,
    first_step: int,
    c: SupervisedTrainSettings,
    rows: list[dict[str, Any]],
  ):
    """Opens the files. See `MetricsWriter` for `rows`."""
    self._may_skip = c.learner.nonfinite == learner_settings.SKIP
    self._writer = None
    if run.is_primary:
      trackers = c.train.trackers
      self._writer = metrics_lib.MetricsWriter(
        run.folder,
        first_step,
        rows,
        Trackers(trackers.names, trackers.project, run.folder),
      )
      self._progress = console.Progress(first_step, c.train.steps)

  def __enter__(self) -> "_Log":
    return self

  def __exit__(self, *error: object) -> None:
    if self._writer is not None:
      self._progress.close()
      self._writer.close()

  def write(self, step: int, values: dict[str, float]) -> None:
    """Writes a step's metrics.

    Raises:
      RuntimeError: a value of the step is not finite.
    """
    nonfinite.check(step, values, self._may_skip)
    if self._writer is None:
      return
    self._writer.write(step, values)
    if step % _PROGRESS_STEPS == 0:
      self._progress.show(step, f"nll {values['learner/nll']:.4f}")

  def take_rows(self) -> list[dict[str, Any]]:
    """Flushes the metrics and returns the rows to store in a checkpoint.

    Raises:
      OSError: the metrics cannot be written. A checkpoint must not be ahead of
        them.
    """
    if self._writer is None:
      return []
    self._writer.flush()
    return self._writer.take_rows()


def _write_model(
  c: SupervisedTrainSettings,
  params: types.Params,
  source: load.ModelSource,
  run: Run,
) -> None:
  """Writes model and tokenizer in Hugging Face format, adapters in PEFT's."""
  folder, lora = run.folder / "model", c.lora.adapters
  # The libraries that write weights and tokenizers cannot write to object
  # stores.
  with contextlib.ExitStack() as written:
    here = folder
    if run.is_primary:
      here = written.enter_context(storage.upload_on_exit(folder))
    if lora is None:
      safetensors_io.save(
        params,
        source.config,
        here,
        dtype=c.train.model_dtype,
        eos_ids=source.tokenizer.eos_ids,
        write=run.is_primary,
      )
    else:
      base = source.peft_base()
      peft_io.save(
        *(params, source.config, lora, base, here), write=run.is_primary
      )
    if run.is_primary:
      source.tokenizer.save(here)
  run.print_status(f"the model is in {folder}")
  run.barrier("the model is written")


def _prepare(
  settings: SupervisedExperimentSettings, run: Run
) -> tuple[Batches, load.ModelSource]:
  """Returns the batches of the corpus, and the initial model.

  Generates corpus and tokenizer if the run's folder lacks them.

  Raises:
    ValueError: every conversation is longer than a row.
  """
  c = settings.shared
  resources = corpora.Resources(
    lambda: build.build_executor(c.executor), run.folder / "corpus"
  )
  corpus = corpora.KINDS[c.data.kind].build(settings.corpus, resources)
  source = _initial_model(c, corpus, run.folder).dated(run.date)
  frozen.check_adapters(c.lora, source.lora, "config.model.source")
  tokenizer = source.tokenizer
  corpus.check(tokenizer, run.print_status)
  order = streams.generator(c.seed, Purpose.CONVERSATIONS).permutation(
    len(corpus.conversations)
  )
  examples = []
  for index in order.tolist():
    ids, loss_mask = corpus.conversations[index].tokens(tokenizer)
    if len(ids) - 1 <= c.learner.row_length:
      examples.append(_example(ids, loss_mask))
  row_length = f"config.learner.row_length={c.learner.row_length}"
  if not examples:
    raise ValueError(
      f"{row_length}: expected at least the length of the shortest conversation"
    )
  if len(examples) < len(order):
    run.print_status(
      f"{len(order) - len(examples)} of {len(order)} conversations are longer "
      f"than {row_length} and left out"
    )
  longest = max(len(example.token_ids) for example in examples)
  messages.announce_model(source, longest, "config.learner.row_length")
  batches = _batches(examples, c)
  run.print_status(sft_plan.describe(c, batches.per_epoch, len(examples)))
  return batches, source


def _initial_model(
  c: SupervisedTrainSettings, corpus: Corpus, folder: pathlib.Path
) -> load.ModelSource:
  """Returns a preset with a newly trained tokenizer, or the model of a spec."""
  kind, _, name = c.model.source.partition(":")
  if kind != "preset":
    return load.resolve(c.model.source, c.model.cache_dir)
  tokenizer = folder / loading.TOKENIZER
  if not (tokenizer / "tokenizer.model").exists():
    sampled = corpus.conversations[: c.data.tokenizer_samples]
    texts = (
      conversation.prompt + "".join(conversation.turns)
      for conversation in sampled
    )
    with storage.upload_on_exit(tokenizer) as here:
      corpus.train_tokenizer(texts, here)
  return loading.untrained(name, folder, c.seed)


def _batches(
  examples: list[packing.TrainingExample], c: SupervisedTrainSettings
) -> Batches:
  """Returns the batches of a run, of rows or of conversations."""
  mesh = decoders.learner_mesh(c)
  rows = sft_batches.RowShape(
    c.learner.row_length,
    c.learner.max_sequences_per_row,
    mesh_lib.padded_rows(c.learner.micro_rows, mesh),
  )
  count = c.data.conversations
  if not count:
    return sft_batches.of_rows(examples, rows, c.learner.micro_rows, c.seed)
  steps = sft_plan.of_epochs(c, len(examples) / count).train.steps
  return sft_batches.of_conversations(examples, count, rows, steps, c.seed)


def _example(ids: list[int], loss_mask: list[bool]) -> packing.TrainingExample:
  return packing.TrainingExample(
    np.asarray(ids, np.int32),
    np.asarray(loss_mask, bool),
    0.0,
    np.zeros(len(ids), np.float32),
  )


def _lengths(batch: types.Batch) -> list[int]:
  """Returns the lengths of all sequences in packed rows, in tokens."""
  counts = (
    np.bincount(row)[1:]
    for row in batch.segment_ids.reshape(-1, batch.segment_ids.shape[-1])
  )
  return [int(count) for row in counts for count in row if count]
