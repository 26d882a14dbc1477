"""Chooses sizes of sampling and learning from the workload and free memory.

Only settings decide what is sampled and what the gradients are. Memory decides
how much is computed at once: cache pages, rows per micro-batch, and the tokens
whose logits are in memory at once. These sizes affect rounding, so config.json
stores them and a resumed run reuses them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
from jax.sharding import Mesh
from jax.typing import DTypeLike

from azr_jax.learner import settings as learner_settings
from azr_jax.learner.learner import State, abstract_frozen
from azr_jax.models import adapters, presets, transformer
from azr_jax.models import remat as remat_lib
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import memory
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import layout
from azr_jax.rollout.build import build_engine
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.trainer.settings import ExperimentSettings, TrainSettings
from azr_jax.types import Params, Rules

# A resumed run cannot change its sizes.
_RESUMED = (
  "the folder's run started with these sizes; expected as much memory as then, "
  "more devices with config.mesh.fsdp, or another --workdir"
)
_SHORTEST_BUCKET = 16
_MOST_SLOTS = 256
# Tokens per micro-batch, and tokens whose logits are in memory at once.
_MICRO_TOKENS, _CHUNK_TOKENS = 4096, 1024
# float32 copies of a chunk's logits in the backward pass.
_LOGIT_COPIES = 4
# Fraction of memory for a chunk's logits.
_MAX_LOGITS = 0.1
# Bytes of a parameter's gradients: the sum and a micro-batch's.
_GRADIENTS = 8
# On CPUs, XLA needs this many times the memory of a bfloat16 pool.
_CPU_HALF_COPIES = 4


@dataclasses.dataclass(frozen=True)
class Workload:
  """The workload of a command, known before its first token.

  Attributes:
    responses: the number of responses.
    longest_prompt: tokens of the longest prompt. 0 if unknown, or if prompts
      depend on responses.
    max_tokens: the largest response limit. 0 means `rollout.max_tokens`.
  """

  responses: int
  longest_prompt: int = 0
  max_tokens: int = 0


def for_workload(
  rollout: SamplerSettings, workload: Workload
) -> SamplerSettings:
  """Returns settings without slots, buckets or tokens that nothing needs.

  Prompts beyond the largest bucket are never sampled, so they need no bucket.
  """
  buckets = rollout.prompt_buckets
  if workload.longest_prompt:
    fitting = [b for b in buckets if b >= workload.longest_prompt]
    longest = (fitting or buckets[-1:])[0]
    buckets = tuple(b for b in buckets if b <= longest)
  return dataclasses.replace(
    rollout,
    slots=min(rollout.slots, max(workload.responses, 1)),
    prompt_buckets=buckets,
    max_tokens=min(
      rollout.max_tokens, workload.max_tokens or rollout.max_tokens
    ),
  )


def for_step(
  settings: ExperimentSettings, workload: Workload | None = None
) -> TrainSettings:
  """Returns shared settings without slots or rows that a step cannot fill.

  Args:
    settings: the configuration.
    workload: a step's workload. None asks the system.
  """
  c = settings.shared
  rollout, learner = c.rollout, c.learner
  if workload is not None:
    rollout, trained = for_workload(rollout, workload), workload.responses
  else:
    load = settings.system.about(settings.system_settings).load
    if load is None:
      return c
    trained = load.trained
    # Evaluations use slots too, and free slots let the next step start early.
    # With a fixed cache size, slots cost little.
    is_open = c.evaluation.every or rollout.max_staleness
    if not is_open and not rollout.cache_gib:
      rollout = for_workload(rollout, Workload(load.sequences))
  # No micro-batch has responses of several minibatches.
  most = -(-max(trained, 1) // learner.minibatches)
  learner = dataclasses.replace(
    learner, micro_rows=min(learner.micro_rows, most)
  )
  return dataclasses.replace(c, rollout=rollout, learner=learner)


def as_begun(
  c: TrainSettings,
  config: ml_collections.ConfigDict,
  begun_with: Mapping[str, Any] | None,
) -> tuple[TrainSettings, dict[str, Any]]:
  """Returns settings and config with the cache size of a run's first start.

  Args:
    c: the checked settings of the config.
    config: the command's config.
    begun_with: the config the run started with, or None for a new run.
  """
  values = config.to_dict()
  if begun_with is None or c.rollout.cache_gib:
    return c, values
  gib = begun_with.get("rollout", {}).get("cache_gib", 0.0)
  if not gib:
    return c, values
  rollout = _with_cache(c.rollout, gib)
  keep(values, rollout)
  return dataclasses.replace(c, rollout=rollout), values


def keep(values: dict[str, Any], rollout: SamplerSettings) -> None:
  """Writes the sizes chosen from memory into a config."""
  values["rollout"]["cache_gib"] = rollout.cache_gib
  values["rollout"]["decode_chunk"] = rollout.decode_chunk


def describe(rollout: SamplerSettings) -> str:
  """Describes in one line a cache whose size was chosen from memory."""
  return (
    f"memory has room for a cache of {rollout.cache_gib:.3g} GiB on each "
    f"device (rollout.cache_gib): {rollout.slots} slots share it, so sequences "
    "may wait"
  )


def _with_cache(rollout: SamplerSettings, gib: float) -> SamplerSettings:
  """Returns settings with a cache that may be too small for all slots."""
  chunk = min(rollout.decode_chunk, rollout.page_size)
  return dataclasses.replace(rollout, cache_gib=gib, decode_chunk=chunk)


def without_spare_pages(
  model: transformer.Transformer,
  mesh: Mesh,
  rules: Rules,
  rollout: SamplerSettings,
) -> SamplerSettings:
  """Drops cache pages that no slot can use."""
  if not rollout.cache_gib:
    return rollout
  whole = dataclasses.replace(rollout, cache_gib=0.0)
  engine = build_engine(model, mesh, rules, whole)
  if layout.cache_bytes(engine) > rollout.cache_gib * memory.GIB:
    return rollout
  return whole


def fit_cache(
  model: transformer.Transformer,
  mesh: Mesh,
  rules: Rules,
  rollout: SamplerSettings,
  room: int,
  may_choose: bool = True,
  shares_base: bool = False,
) -> SamplerSettings:
  """Returns settings whose cache fits next to the sampler's weights.

  If memory cannot hold the longest sequence in every slot, `cache_gib` is set
  to the size that fits. Sequences then take pages as they grow, and may have to
  wait for them.

  Args:
    model: the training decoder.
    mesh: the mesh to sample on.
    rules: logical parameter axis to mesh axis.
    rollout: the shapes of sampling.
    room: bytes per device that sampling may use.
    may_choose: False for a resumed run, whose sizes are fixed.
    shares_base: see `engine.make_engine`.

  Raises:
    MemoryError: the configured cache, or the smallest one, does not fit.
    ValueError: `cache_gib` is too small for the longest sequence.
  """
  engine = build_engine(model, mesh, rules, rollout, shares_base)
  weights = layout.weight_bytes(engine)
  is_half = rollout.cache_dtype(model.dtype) == jnp.bfloat16
  is_cpu = mesh_lib.platform(mesh) == "cpu"
  copies = _CPU_HALF_COPIES if is_cpu and is_half else 1
  page = layout.cache_bytes(engine) // engine.num_pages * copies
  needed = weights + engine.num_pages * page
  # What a prefill copies may take the memory that other programs leave.
  room, available = room - layout.stacked_bytes(engine), room
  held_room = min(layout.MAX_HELD * available, room)
  if needed <= held_room:
    return rollout
  shapes = engine.shapes
  least = shapes.max_pages_per_row + shapes.pages_for(
    rollout.prompt_buckets[-1]
  )
  if rollout.cache_gib or not may_choose:
    if needed <= room:
      return rollout
    advice = (
      "lower config.rollout.slots or config.rollout.max_tokens"
      if not rollout.cache_gib
      else f"lower config.rollout.cache_gib={rollout.cache_gib:g}"
    )
    if not may_choose:
      advice = _RESUMED
    raise memory.too_little("sampling", needed, room, advice)
  if weights + least * page > room:
    raise memory.too_little(
      f"sampling one sequence of {rollout.longest + 1} tokens",
      weights + least * page,
      room,
      f"lower config.rollout.max_tokens={rollout.max_tokens} or the last of "
      f"config.rollout.prompt_buckets={rollout.prompt_buckets}, or take a "
      "smaller model",
    )
  fitting = int((held_room - weights) // page)
  # The size is later converted back to pages and rounded down. With half a page
  # more, the result is the same number.
  pages = max(fitting, least) + 0.5
  return _with_cache(rollout, pages * page / copies / memory.GIB)


def check_weights(
  model: transformer.Transformer,
  dtype: DTypeLike,
  mesh: Mesh,
  rules: Rules,
  is_frozen: bool = False,
) -> None:
  """Raises MemoryError if a model's weights cannot possibly fit.

  Args:
    model: the decoder. Parameters that can be trained are float32.
    dtype: the dtype of frozen matrices without 8 bits.
    mesh: the mesh of the parameters.
    rules: logical parameter axis to mesh axis.
    is_frozen: whether all of its parameters are frozen.
  """
  available = memory.available_bytes()
  trained_boxes = {} if is_frozen else transformer.abstract_trained(model)
  trained = mesh_lib.sharded_shapes(trained_boxes, mesh, rules)
  boxes = transformer.abstract_base(model)
  if is_frozen:
    boxes = transformer.abstract_params(model)
  base = abstract_frozen(boxes, model.kernel_dtype, mesh, rules, dtype)
  needed = layout.shard_bytes(trained) + layout.shard_bytes(base)
  if available is not None and needed > available:
    raise memory.too_little(
      "loading the weights",
      needed,
      available,
      "take a smaller model, or more devices with config.mesh.fsdp",
    )


def check_update(
  learner: learner_settings.LearnerSettings
  | learner_settings.SupervisedSettings,
  config: ModelConfig,
  state: State,
  mesh: Mesh,
  available: int | None,
  may_choose: bool = True,
  base: Params | None = None,
  reference_dtype: DTypeLike | None = None,
  teacher: Params | None = None,
) -> int:
  """Checks that an update fits; returns the bytes of its state per device.

  The bytes include those of a frozen base and of a teacher.

  Args:
    learner: rows and chunks of the learner.
    config: the model's config.
    state: the learner's state, as sharded shapes.
    mesh: the learner's mesh.
    available: bytes per device before the state exists; None if unknown.
    may_choose: False for a run that started with these settings.
    base: the frozen parameters, as sharded shapes.
    reference_dtype: the dtype of the kept copy of the initial parameters; None
      without one.
    teacher: the parameters of a teacher that is another model, as sharded
      shapes.

  Raises:
    MemoryError: an update cannot possibly fit.
  """
  state_bytes = layout.shard_bytes((state, base, teacher))
  if reference_dtype is not None:
    state_bytes += layout.shard_bytes(_with_dtype(state, reference_dtype))
  rows = mesh_lib.padded_rows(learner.micro_rows, mesh)
  tokens = rows * learner.row_length // mesh_lib.batch_devices(mesh)
  vocab = config.vocab_size // mesh.shape["tensor"]
  logits = 4 * vocab * min(learner.chunk_tokens, tokens)
  gradients = _with_dtype(state, jnp.float32)
  # At best, gradients are summed in place.
  held = state_bytes + layout.shard_bytes(gradients)
  if available is None or held + logits <= available:
    return state_bytes
  advice = "take a smaller model, or more devices with config.mesh.fsdp"
  if held <= available:
    advice = f"lower config.learner.chunk_tokens={learner.chunk_tokens}"
  if not may_choose:
    advice = _RESUMED
  raise memory.too_little("an update", held + logits, available, advice)


def _with_dtype(state: State, dtype: DTypeLike) -> Params:
  """Returns the shapes of the trained parameters in another dtype."""
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, dtype, sharding=x.sharding),
    state.params,
  )


def prompt_buckets(longest: int) -> tuple[int, ...]:
  """Returns two prompt lengths to compile: the longest and half of it."""
  bucket = _SHORTEST_BUCKET
  while bucket < longest:
    bucket *= 2
  halves = (bucket // 2,) if bucket > _SHORTEST_BUCKET else ()
  return (*halves, bucket)


@dataclasses.dataclass(frozen=True)
class Memory:
  """The limits on the rows of a micro-batch.

  Attributes:
    config: the model's config.
    dtype: the name of the compute dtype.
    remat: which activations are stored, as in `model.remat`.
    critic: whether a critic is trained too.
    available: bytes per device before the state exists.
    devices: the number of devices that share the parameters.
    platform: the devices' platform: cpu, gpu or tpu.
    lora: the adapters, if only these are trained.
    base_bytes: bytes of the frozen parameters.
    state_size: bytes of a trained parameter and its moments, of all networks.
  """

  config: ModelConfig
  dtype: str
  remat: str
  critic: bool
  available: int
  devices: int
  platform: str
  lora: adapters.Lora | None = None
  base_bytes: int = 0
  state_size: float = remat_lib.STATE_SIZE

  def chunk_tokens(self) -> int:
    """Returns how many tokens' logits fit into their share of memory."""
    room = _MAX_LOGITS * self.available
    return max(16, int(room // (4 * _LOGIT_COPIES * self.config.vocab_size)))

  def device_rows(self, row_length: int) -> int:
    """Estimates how many rows per device have activations that fit."""
    count = presets.parameter_count(self.config)
    if self.lora is not None:
      count = adapters.parameter_count(self.config, self.lora)
    room = (layout.MAX_HELD - _MAX_LOGITS) * self.available
    room -= count * (self.state_size + _GRADIENTS) / self.devices
    room -= self.base_bytes / self.devices
    rows = room // (row_length * self._token_bytes(row_length))
    return max(1, int(rows))

  def _token_bytes(self, row_length: int) -> float:
    """Estimates the bytes of a token's activations.

    Compiled CPU updates of SmolLM2-135M use 10 % less than this estimate.
    """
    c, is_cpu = self.config, self.platform == "cpu"
    # XLA computes in float32 on CPUs.
    size = 4 if is_cpu else jnp.dtype(self.dtype).itemsize
    layer = 10 * c.hidden_size + 4 * c.active_mlp_size
    if c.experts is not None:
      layer += 4 * c.experts.per_token * c.hidden_size
    if is_cpu:  # On other devices, attention stores no scores.
      layer += 3 * c.num_heads * row_length
    # Rows take precedence: `auto` later keeps the activations that still fit.
    remat = self.remat
    if remat == transformer.AUTO:
      remat = "none" if is_cpu else "full"
    stores_all = is_cpu and remat == "none"
    kept = layer if stores_all else remat_lib.kept_numbers(c, remat)
    return size * (layer + c.num_layers * kept)


def fitted(
  max_tokens: int,
  longest_prompt: int,
  responses: int,
  bounds: Memory | None = None,
  devices: int = 1,
  minibatches: int = 1,
) -> dict[str, Any]:
  """Returns the sizes of a training config, by dotted key.

  Args:
    max_tokens: the maximum tokens of a response.
    longest_prompt: the tokens of the longest prompt.
    responses: the responses per step.
    bounds: the memory limits; None if unknown.
    devices: the number of devices that share a micro-batch's rows.
    minibatches: the number of the policy's optimizer steps per update, each
      with micro-batches of its own.
  """
  buckets = prompt_buckets(longest_prompt)
  row_length = -(-(buckets[-1] + max_tokens) // 8) * 8
  most_rows = max(1, _MICRO_TOKENS // row_length)
  chunk_tokens = _CHUNK_TOKENS
  if bounds is not None:
    chunk_tokens = min(chunk_tokens, bounds.chunk_tokens())
    # A critic takes an optimizer step per micro-batch, so memory must not
    # change the number of micro-batches.
    if not bounds.critic:
      most_rows = min(most_rows, bounds.device_rows(row_length))
  most_rows *= devices
  # The fewest micro-batches that have a row per response, evenly filled.
  most_of_part = -(-responses // minibatches)
  micro_batches = -(-most_of_part // most_rows)
  micro_rows = -(-most_of_part // micro_batches)
  micro_rows += -micro_rows % devices  # Devices have equally many rows.
  return {
    "rollout.prompt_buckets": buckets,
    "rollout.slots": min(responses, _MOST_SLOTS),
    "rollout.decode_chunk": min(32, max_tokens),
    "learner.row_length": row_length,
    "learner.micro_rows": micro_rows,
    "learner.max_micro_batches": micro_batches * minibatches,
    "learner.chunk_tokens": min(chunk_tokens, micro_rows * row_length),
  }
