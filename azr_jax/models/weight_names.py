"""Layout of each parameter in a Hugging Face checkpoint.

The parameters of `transformer.py` stack the layers and have separate axes for
heads and channels; a checkpoint has one [out, in] matrix per layer. Loading and
saving share the table that `entries` yields.
"""

import dataclasses
import math
from collections.abc import Iterator

from azr_jax.models import adapters
from azr_jax.models.adapters import Lora
from azr_jax.models.config import ModelConfig

# The path of each projection's module in a layer of transformers' models.
MODULE_PATHS = {
  **{name: f"self_attn.{name}_proj" for name in ("q", "k", "v", "o")},
  **{name: f"mlp.{name}_proj" for name in ("gate", "up", "down")},
}


@dataclasses.dataclass(frozen=True)
class Entry:
  """The layout of one parameter in our tree and in a checkpoint.

  Attributes:
    path: keys in the parameter tree.
    name: tensor name, with `{layer}` if the parameter stacks the layers.
    shape: shape of the parameter in one layer.
    transposed: whether the checkpoint has [out, in] for our [in, out].
    inputs: number of leading axes of `shape` that are inputs.
  """

  path: tuple[str, ...]
  name: str
  shape: tuple[int, ...]
  transposed: bool
  inputs: int = 1

  @property
  def stacked(self) -> bool:
    """Whether the checkpoint has one tensor per layer."""
    return "{layer}" in self.name

  @property
  def groups(self) -> tuple[tuple[int, ...], ...]:
    """The axes of `shape` that each axis of the checkpoint merges."""
    axes = tuple(range(len(self.shape)))
    if self.transposed:
      return axes[self.inputs :], axes[: self.inputs]
    if self.path[-1] == "bias":
      return (axes,)
    return tuple((axis,) for axis in axes)

  @property
  def checkpoint_shape(self) -> tuple[int, ...]:
    """The shape of one tensor in the checkpoint."""
    return tuple(
      math.prod(self.shape[axis] for axis in group) for group in self.groups
    )


def entries(config: ModelConfig) -> Iterator[Entry]:
  """Yields an entry for each parameter of a decoder."""
  c = config
  D, F, E = c.hidden_size, c.mlp_size, c.head_size
  yield Entry(
    ("embedding",), "model.embed_tokens.weight", (c.vocab_size, D), False
  )
  if not c.tie_embeddings:
    yield Entry(("head",), "lm_head.weight", (D, c.vocab_size), True)
  yield Entry(("final_norm", "scale"), "model.norm.weight", (D,), False)

  layer = "model.layers.{layer}"
  for norm, tensor in (
    ("attention_norm", "input_layernorm"),
    ("mlp_norm", "post_attention_layernorm"),
  ):
    yield Entry(
      ("layers", norm, "scale"), f"{layer}.{tensor}.weight", (D,), False
    )
  for name, heads in (
    ("q", c.num_heads),
    ("k", c.num_kv_heads),
    ("v", c.num_kv_heads),
  ):
    path = ("layers", "attention", name)
    tensor = f"{layer}.self_attn.{name}_proj"
    yield Entry((*path, "kernel"), f"{tensor}.weight", (D, heads, E), True)
    if c.qkv_bias:
      yield Entry((*path, "bias"), f"{tensor}.bias", (heads, E), False)
  if c.qk_norm:
    for name in ("q_norm", "k_norm"):
      yield Entry(
        ("layers", "attention", name, "scale"),
        f"{layer}.self_attn.{name}.weight",
        (E,),
        False,
      )
  yield Entry(
    ("layers", "attention", "o", "kernel"),
    f"{layer}.self_attn.o_proj.weight",
    (c.num_heads, E, D),
    True,
    inputs=2,
  )
  for name, shape in (("gate", (D, F)), ("up", (D, F)), ("down", (F, D))):
    yield Entry(
      ("layers", "mlp", name, "kernel"),
      f"{layer}.mlp.{name}_proj.weight",
      shape,
      True,
    )


def adapter_entries(config: ModelConfig, lora: Lora) -> Iterator[Entry]:
  """Yields entries for A and B of each adapter, named as in PEFT's files."""
  for entry in entries(config):
    *parents, name, leaf = ("", *entry.path)
    if leaf != "kernel" or name not in lora.targets:
      continue
    path = (*parents[1:], f"{name}{adapters.SUFFIX}")
    tensor = f"base_model.model.{entry.name.removesuffix('.weight')}"
    inputs, outputs = entry.shape[: entry.inputs], entry.shape[entry.inputs :]
    yield Entry(
      (*path, "a"),
      f"{tensor}.lora_A.weight",
      (*inputs, lora.rank),
      True,
      inputs=entry.inputs,
    )
    yield Entry(
      (*path, "b"), f"{tensor}.lora_B.weight", (lora.rank, *outputs), True
    )
