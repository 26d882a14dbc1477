"""Layout of each parameter in a Hugging Face checkpoint.

The parameters of `transformer.py` stack the layers and have separate axes for
heads and channels; a checkpoint has one [out, in] matrix per layer. Loading and
saving share the table that `entries` yields. The model's family names the
tensors (`families/`).
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping

from azr_jax.models import adapters
from azr_jax.models.adapters import Lora
from azr_jax.models.config import ExpertShape, ModelConfig
from azr_jax.models.families import registry
from azr_jax.models.families.family import Family

# What the leading axes of a parameter stack.
_STACKED = ("layer", "expert")


@dataclasses.dataclass(frozen=True)
class Entry:
  """The layout of one parameter in our tree and in a checkpoint.

  Attributes:
    path: keys in the parameter tree.
    name: tensor name, with `{layer}` if the parameter stacks the layers, and
      `{expert}` if it stacks a layer's experts.
    shape: shape of the parameter in one tensor.
    transposed: whether the checkpoint has [out, in] for our [in, out].
    inputs: number of leading axes of `shape` that are inputs.
    part: the first row of a tensor that several parameters share, and how many
      rows it has. None: the parameter has a tensor of its own.
    experts: number of experts that the parameter stacks in each layer; 0 if it
      has one tensor per layer.
    leading: number of axes of `shape` that the tensor has as its first axes.
    columns: the first column of a tensor whose columns belong to several
      parameters in turn, and how many parameters these are.
  """

  path: tuple[str, ...]
  name: str
  shape: tuple[int, ...]
  transposed: bool
  inputs: int = 1
  part: tuple[int, int] | None = None
  experts: int = 0
  leading: int = 0
  columns: tuple[int, int] = (0, 1)

  def stack(self, num_layers: int) -> tuple[int, ...]:
    """Returns the leading axes of the parameter, along which tensors lie.

    Args:
      num_layers: L.
    """
    if "{layer}" not in self.name:
      return ()
    return (num_layers, self.experts) if self.experts else (num_layers,)

  def indices(self, num_layers: int) -> Iterator[tuple[int, ...]]:
    """Yields the index of each tensor along the leading axes."""
    return itertools.product(*map(range, self.stack(num_layers)))

  def tensor(self, index: tuple[int, ...]) -> str:
    """Returns the name of the tensor at an index."""
    return self.name.format(**dict(zip(_STACKED, index, strict=False)))

  @property
  def groups(self) -> tuple[tuple[int, ...], ...]:
    """The axes of `shape` that each axis of the checkpoint merges."""
    axes = tuple(range(self.leading, len(self.shape)))
    leading = tuple((axis,) for axis in range(self.leading))
    if self.transposed:
      return axes[self.inputs :], axes[: self.inputs]
    if self.path[-1] in ("bias", "scale"):
      return (*leading, axes)
    return (*leading, *((axis,) for axis in axes))

  @property
  def checkpoint_shape(self) -> tuple[int, ...]:
    """The shape of this parameter's rows and columns of one tensor."""
    return tuple(
      math.prod(self.shape[axis] for axis in group) for group in self.groups
    )

  @property
  def tensor_shape(self) -> tuple[int, ...]:
    """The shape of one tensor in the checkpoint."""
    shape = [*self.checkpoint_shape]
    if self.part is not None:
      shape[0] = self.part[1]
    shape[-1] *= self.columns[1]
    return tuple(shape)


def entries(config: ModelConfig) -> Iterator[Entry]:
  """Yields an entry for each parameter of a decoder.

  Those that share a tensor are in the order of its rows or columns.
  """
  c, family = config, registry.of(config)
  D = c.hidden_size
  yield Entry(
    ("embedding",), _tensor(family, "embedding"), (c.vocab_size, D), False
  )
  if not c.tie_embeddings:
    yield Entry(("head",), _tensor(family, "head"), (D, c.vocab_size), True)
  yield Entry(
    ("final_norm", "scale"), _tensor(family, "final_norm"), (D,), False
  )
  for norm, exists in (
    ("attention_norm", c.norm_before),
    ("attention_post_norm", c.norm_after),
    ("mlp_norm", c.norm_before),
    ("mlp_post_norm", c.norm_after),
  ):
    if exists:
      name = _layer_tensor(family, norm)
      yield Entry(("layers", norm, "scale"), name, (D,), False)
  yield from _attention_entries(config, family)
  F = c.mlp_size if c.experts is None else c.experts.size
  for name, shape in (("gate", (D, F)), ("up", (D, F)), ("down", (F, D))):
    if c.experts is None:
      yield _projection(family, "mlp", name, shape, fused={"gate": F, "up": F})
    elif family.expert_tensors:
      yield from _joined_experts(family, name, c.experts, shape)
    else:
      entry = _projection(family, "experts", name, shape)
      yield dataclasses.replace(entry, experts=c.experts.count)
  if c.experts is not None:
    yield _projection(family, "experts", "router", (D, c.experts.count))
    if c.experts.biases:
      tensor = _layer_tensor(family, "router", "bias")
      path = ("layers", "experts", "router", "bias")
      yield Entry(path, tensor, (c.experts.count,), False)


def _joined_experts(
  family: Family, name: str, experts: ExpertShape, shape: tuple[int, ...]
) -> Iterator[Entry]:
  """Yields the entries of a projection that has one tensor for all experts."""
  tensor = family.expert_tensors[name]
  sharing = [n for n, other in family.expert_tensors.items() if other == tensor]
  leaves = {"kernel": ("", shape)}
  if experts.biases:
    leaves["bias"] = "_bias", shape[1:]
  for leaf, (suffix, of_expert) in leaves.items():
    yield Entry(
      ("layers", "experts", name, leaf),
      f"model.layers.{{layer}}.{tensor}{suffix}",
      (experts.count, *of_expert),
      transposed=False,
      leading=1,
      columns=(sharing.index(name), len(sharing)),
    )


def _attention_entries(config: ModelConfig, family: Family) -> Iterator[Entry]:
  """Yields an entry for each parameter of an attention."""
  c = config
  D, E = c.hidden_size, c.head_size
  heads = {"q": c.num_heads, "k": c.num_kv_heads, "v": c.num_kv_heads}
  rows = {name: count * E for name, count in heads.items()}
  for name, count in heads.items():
    yield _projection(family, "attention", name, (D, count, E), fused=rows)
    if c.qkv_bias:
      tensor = _layer_tensor(family, name, "bias")
      path = ("layers", "attention", name, "bias")
      yield Entry(path, tensor, (count, E), False)
  if c.qk_norm or c.joint_qk_norm:
    for name in ("q", "k"):
      yield Entry(
        ("layers", "attention", f"{name}_norm", "scale"),
        _layer_tensor(family, f"{name}_norm"),
        (E,) if c.qk_norm else (heads[name], E),
        False,
      )
  yield _projection(family, "attention", "o", (c.num_heads, E, D), inputs=2)
  if c.o_bias:
    tensor = _layer_tensor(family, "o", "bias")
    yield Entry(("layers", "attention", "o", "bias"), tensor, (D,), False)
  if c.sinks:
    tensor = _layer_tensor(family, "attention", "sinks")
    path = ("layers", "attention", "sinks")
    yield Entry(path, tensor, (c.num_heads,), False)


def _projection(
  family: Family,
  part: str,
  name: str,
  shape: tuple[int, ...],
  inputs: int = 1,
  fused: Mapping[str, int] | None = None,
) -> Entry:
  """Returns the entry of a projection's kernel.

  Args:
    family: the model's family.
    part: the projection's part of a layer.
    name: the projection's name.
    shape: its input axes, then its output axes.
    inputs: number of its input axes.
    fused: name and rows of the projections that may share a tensor with it.
  """
  path = ("layers", part, name, "kernel")
  for module, names in family.fused.items():
    if name in names and fused is not None:
      before = names[: names.index(name)]
      rows = sum(fused[n] for n in before), sum(fused[n] for n in names)
      tensor = f"model.layers.{{layer}}.{module}.weight"
      return Entry(path, tensor, shape, True, inputs, rows)
  return Entry(path, _layer_tensor(family, name), shape, True, inputs)


def _tensor(family: Family, name: str, leaf: str = "weight") -> str:
  """Returns the name of a tensor outside of the layers."""
  return f"{family.module(name)}.{leaf}"


def _layer_tensor(family: Family, name: str, leaf: str = "weight") -> str:
  """Returns the name of a tensor of a layer."""
  return f"model.layers.{{layer}}.{_tensor(family, name, leaf)}"


def adapter_entries(config: ModelConfig, lora: Lora) -> Iterator[Entry]:
  """Yields entries for A and B of each adapter, named as in PEFT's files.

  Those of experts have the names and shapes of `peft_experts.ExpertsReader`.

  Raises:
    ValueError: the family's files have fewer projections than the decoder, or
      experts have adapters of gate or up alone.
  """
  family = registry.of(config)
  if family.fused:
    raise ValueError(
      f"model_type={family.name!r}: expected a family whose files have q, k "
      "and v, and gate and up, apart, as adapters in PEFT's format need"
    )
  for entry in entries(config):
    *parents, name, leaf = ("", *entry.path)
    if leaf != "kernel" or name not in lora.targets:
      continue
    path = (*parents[1:], f"{name}{adapters.SUFFIX}")
    if config.experts is not None and "experts" in parents:
      yield from _expert_adapters(config.experts, lora, path, entry.shape[-2:])
      continue
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


def _expert_adapters(
  experts: ExpertShape,
  lora: Lora,
  path: tuple[str, ...],
  sides: tuple[int, ...],
) -> Iterator[Entry]:
  """Yields entries for A and B of the adapters of a layer's experts.

  Raises:
    ValueError: gate or up has adapters, and the other has none.
  """
  if ("gate" in lora.targets) != ("up" in lora.targets):
    raise ValueError(
      f"lora.targets={lora.targets}: expected both gate and up or neither, as "
      "adapters of experts in PEFT's format need (or export a merged model)"
    )
  rank = lora.rank_in(experts)
  (inner, outer), name = sides, path[-1].removesuffix(adapters.SUFFIX)
  for leaf, shape in (("a", (inner, rank)), ("b", (rank, outer))):
    yield Entry(
      (*path, leaf),
      expert_adapter(name, leaf),
      (experts.count, *shape),
      transposed=False,
      leading=1,
    )


def expert_adapter(name: str, leaf: str) -> str:
  """Returns the name of the entry of an expert's adapter.

  Args:
    name: the projection: gate, up or down.
    leaf: a or b.
  """
  return f"base_model.model.model.layers.{{layer}}.mlp.experts.{name}.{leaf}"
