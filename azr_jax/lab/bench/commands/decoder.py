"""The decoder that a command measures, and flags that commands share."""

import argparse
import dataclasses
import types

import jax

from azr_jax.learner import packing
from azr_jax.models import attention, load, transformer
from azr_jax.models import remat as remat_lib
from azr_jax.parallel import memory
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.settings import (
  AUTO,
  CACHE_DTYPES,
  LAYERS,
  NONE,
  QUANTIZATIONS,
)

BASELINES = ("none", "transformers")
# Logical axis to mesh axis: a single device is measured, so nothing is sharded.
RULES: dict[str, str | None] = dict.fromkeys(
  ("vocab", "embed", "heads", "kv_heads", "head_size", "mlp", "layers")
)


class Decoder:
  """A decoder with its parameters on one device, and the baseline, if any.

  Attributes:
    mesh: a mesh of the first device.
    source: the model's config and tokenizer.
    model: the decoder.
    params: the decoder's parameters.
    baseline: a model of another library with the same weights, or None.
  """

  def __init__(self, flags: argparse.Namespace, baseline: str = "none"):
    """Loads the decoder that `add_decoder_flags` selects."""
    axes = {"data": 1, "fsdp": 1, "tensor": 1}
    self.mesh = mesh_lib.make_mesh(axes, jax.devices()[:1])
    self.source = _with_layers(
      load.resolve(flags.model, flags.cache_dir), flags.num_layers
    )
    remat = remat_lib.choose(
      flags.remat,
      self.source.config,
      flags.dtype,
      self.mesh,
      getattr(flags, "micro_rows", 1) * getattr(flags, "length", 1),
      getattr(flags, "chunk_tokens", 1),
      memory.capacity_bytes(self.mesh),
      inlined=transformer.is_inlined(
        flags.train_layers, self.source.config.num_layers, self.mesh
      ),
      sampler_bytes=None if hasattr(flags, "slots") else 0.0,
    )
    self.model = transformer.training(
      self.source.config,
      flags.dtype,
      self.mesh,
      RULES,
      attention_name=flags.attention,
      max_sequences_per_row=flags.sequences_per_row,
      remat=remat,
      layers=flags.train_layers,
    )
    self.params = self.source.load_params(self.mesh, RULES)
    self.baseline = None
    if baseline == "transformers":
      self.baseline = import_baseline().load(
        self.source.config, self.params, flags.dtype
      )


def _with_layers(source: load.ModelSource, layers: int) -> load.ModelSource:
  """Returns a model with random weights and a number of layers; 0: all."""
  if not layers:
    return source
  config = dataclasses.replace(source.config, num_layers=layers)
  return dataclasses.replace(
    source, config=config, load_params=load.random_params(config, seed=0)
  )


def import_baseline() -> types.ModuleType:
  """Imports the baseline, which needs the optional dependency torch."""
  from azr_jax.lab.bench import transformers_baseline

  return transformers_baseline


def add_decoder_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the decoder and the number of repeats."""
  add = parser.add_argument
  add("--model", default="random:smollm2-135m", help="model spec")
  add(
    "--num_layers",
    type=int,
    default=0,
    help="measure the model with this many layers and random weights; 0: all",
  )
  add(
    "--cache_dir", default="~/.cache/azr_jax", help="folder of model downloads"
  )
  add("--dtype", default="float32", choices=("float32", "bfloat16"))
  add("--attention", default="auto", choices=attention.NAMES)
  add(
    "--remat",
    default=transformer.AUTO,
    choices=(transformer.AUTO, *transformer.REMAT_POLICIES),
  )
  add(
    "--train_layers",
    default=transformer.AUTO,
    choices=(transformer.AUTO, transformer.SCAN, transformer.UNROLLED),
    help="as model.layers",
  )
  add(
    "--sequences_per_row",
    type=int,
    default=packing.MAX_SEQUENCES_PER_ROW,
    help="as learner.max_sequences_per_row",
  )
  add(
    "--repeats",
    type=int,
    default=3,
    help="timed runs of each, including the baseline",
  )


def add_baseline_flag(parser: argparse.ArgumentParser) -> None:
  """Adds the flag that selects a library to compare with."""
  parser.add_argument(
    "--baseline",
    default="none",
    choices=BASELINES,
    help="library that does the same work with the same weights",
  )


def add_slot_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the sampler's shapes."""
  add = parser.add_argument
  add("--prompt_tokens", type=int, default=128, help="tokens per prompt")
  add(
    "--slots",
    type=int,
    default=8,
    help="sequences decoded together; the baseline's batch size",
  )
  add(
    "--prefill_tokens",
    type=int,
    default=1024,
    help="prefill tokens per device call",
  )
  add(
    "--decode_chunk",
    type=int,
    default=32,
    help="decoded tokens per slot and device call",
  )
  add("--page_size", type=int, default=128, help="tokens per cache page")


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of a workload of prompts, and of the slots."""
  add = parser.add_argument
  add("--prompts", type=int, default=8, help="number of prompts")
  add("--samples", type=int, default=1, help="responses per prompt")
  add(
    "--new_tokens", type=int, default=128, help="tokens of the longest response"
  )
  add("--top_p", type=float, default=1.0)
  add("--ragged", action="store_true", help="draw random lengths")
  add("--layers", default=AUTO, choices=LAYERS, help="see `rollout.layers`")
  add(
    "--quantization",
    default=NONE,
    choices=QUANTIZATIONS,
    help="see `rollout.quantization`",
  )
  add(
    "--kv_cache_dtype",
    default=AUTO,
    choices=CACHE_DTYPES,
    help="see `rollout.kv_cache_dtype`",
  )
  add_slot_flags(parser)


def add_update_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the update's shapes."""
  add = parser.add_argument
  add("--micro_rows", type=int, default=16, help="rows per micro-batch at most")
  add(
    "--chunk_tokens",
    type=int,
    default=2048,
    help="tokens whose logits are computed at once",
  )
