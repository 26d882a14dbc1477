"""Adapters of experts in PEFT's files.

transformers 5 keeps the experts of a layer in two parameters, `gate_up_proj`
and `down_proj`. PEFT adapts parameters through `target_parameters` and wraps
the layer's experts once for each. With X experts and rank R the tensors are

  mlp.experts.base_layer.lora_A.weight  [X R, D]     of gate_up_proj
  mlp.experts.base_layer.lora_B.weight  [2 F, R X]
  mlp.experts.lora_A.weight             [X R, F]     of down_proj
  mlp.experts.lora_B.weight             [D, R X]

and those of gate_up_proj lack `base_layer` if down_proj has no adapter.

Here gate and up have an adapter each. In files, both together are one of twice
the rank: A holds both, and B has a block for each and is 0 elsewhere. Other
files have one A for both, which is then the A of gate and of up.
"""

import math
import pathlib
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32

from azr_jax.config import user_files
from azr_jax.models.adapters import Lora
from azr_jax.models.config import ExpertShape, ModelConfig
from azr_jax.models.families import registry
from azr_jax.models.weight_loading import TensorReader

# The module that PEFT wraps.
MODULE = "mlp.experts"
_GATE_UP, _DOWN = f"{MODULE}.gate_up_proj", f"{MODULE}.down_proj"
_TARGETS = {_GATE_UP: ("gate", "up"), _DOWN: ("down",)}
PATTERNS = ("rank_pattern", "alpha_pattern")
_TENSOR = re.compile(
  rf"(.*\.{re.escape(MODULE)})(\.base_layer)?\.lora_([AB])\.weight"
)


def fields(lora: Lora, config: ModelConfig) -> dict[str, Any]:
  """Returns the fields of adapter_config.json that describe experts.

  Args:
    lora: the adapters' shape.
    config: the base model's config.
  """
  used = [name for name, own in _TARGETS.items() if {*own} <= {*lora.targets}]
  if config.experts is None or not used:
    return {}
  rank = lora.rank_in(config.experts)
  # Twice the rank with the same scale.
  double = math.sqrt(2) if lora.rank_stabilized else 2
  ranks = {_GATE_UP: 2 * rank, _DOWN: rank}
  alphas = {_GATE_UP: double * lora.alpha}
  return {
    "target_parameters": used,
    "rank_pattern": {name: ranks[name] for name in used},
    "alpha_pattern": {name: alphas[name] for name in used if name in alphas},
  }


def read_fields(
  found: Mapping[str, Any], lora: Lora
) -> tuple[tuple[str, ...], int]:
  """Returns the adapted projections of experts and the rank of their adapters.

  Args:
    found: the fields of adapter_config.json, with `target_parameters`.
    lora: the shape of the other adapters.

  Raises:
    Refusal: the file adapts other parameters, or experts have another alpha or
      different ranks.
  """
  named = {_short(str(name)) for name in found["target_parameters"]}
  if not named <= {*_TARGETS}:
    raise user_files.Refusal(
      f"has target_parameters={found['target_parameters']!r}: expected some of "
      f"{[*_TARGETS]}"
    )
  ranks, alphas = (
    {_short(key): value for key, value in (found.get(name) or {}).items()}
    for name in PATTERNS
  )
  expert_ranks = set()
  for name in named:
    rank = int(ranks.get(name, lora.rank))
    alpha = float(alphas.get(name, lora.alpha))
    # Gate and up apart have half of the rank each, and the same scale.
    parts = 2 if name == _GATE_UP and alpha != lora.alpha else 1
    scale = Lora(rank, alpha, lora.rank_stabilized).scale
    is_ours = rank >= parts and rank % parts == 0
    is_ours = is_ours and math.isclose(scale, lora.scale_of(rank // parts))
    expert_ranks.add(rank // parts if is_ours else 0)
  is_ours = {*ranks, *alphas} <= {*_TARGETS}
  if not is_ours or 0 in expert_ranks or len(expert_ranks) != 1:
    stated = ", ".join(f"{name}={found.get(name)!r}" for name in PATTERNS)
    raise user_files.Refusal(
      f"has {stated}: expected one rank for the parameters of experts, or "
      f"twice the rank and the same scale for {_GATE_UP}, with "
      f"lora_alpha={lora.alpha:g}, and no other patterns"
    )
  targets = tuple(
    t for name in _TARGETS if name in named for t in _TARGETS[name]
  )
  return targets, expert_ranks.pop()


def _short(key: str) -> str:
  """Returns the usual name of a parameter; other keys stay as they are."""
  bare = key.removeprefix(r".*\.").replace(r"\.", ".")
  for name in _TARGETS:
    if name == bare or name.endswith(f".{bare}"):
      return name
  return key


class _Leaf(NamedTuple):
  """A or B of a projection's adapters.

  Attributes:
    tensor: the tensor of the file that has it.
    name: the projection.
    leaf: a or b.
  """

  tensor: str
  name: str
  leaf: str


def reading(
  reader: TensorReader, config: ModelConfig, lora: Lora
) -> TensorReader:
  """Returns a reader of the same adapters, with those of experts apart.

  Args:
    reader: a file in PEFT's format.
    config: the base model's config.
    lora: the adapters' shape.

  Raises:
    ValueError: each expert has tensors of its own in the file.
  """
  if config.experts is None:
    return reader
  return ExpertsReader(reader, config, config.experts, lora)


class ExpertsReader:
  """Reads the adapters of experts as A [X, inner, R] and B [X, R, outer].

  A `TensorReader`. Their names are those of `weight_names.expert_adapter`, and
  other tensors are read as they are.
  """

  def __init__(
    self,
    reader: TensorReader,
    config: ModelConfig,
    experts: ExpertShape,
    lora: Lora,
  ):
    """Lists the tensors, without reading them; see `reading`."""
    self.path: pathlib.Path = reader.path
    self._reader, self._experts = reader, experts.count
    self._rank = lora.rank_in(experts)
    self._interleaved = _is_interleaved(config)
    self._leaves: dict[str, _Leaf] = {}
    self._others = set()
    for name in reader.names():
      match = _TENSOR.fullmatch(name)
      if match is None:
        self._others.add(name)
        continue
      module, inner, letter = match.groups()
      is_down = "down" in lora.targets and not inner
      for own in _TARGETS[_DOWN if is_down else _GATE_UP]:
        leaf = _Leaf(name, own, letter.lower())
        self._leaves[f"{module}.{own}.{leaf.leaf}"] = leaf
    each = [name for name in self._others if f".{MODULE}." in name]
    if each:
      raise ValueError(
        f"{self.path}: tensor {min(each)} belongs to one expert: expected the "
        "tensors of all experts of a layer, as PEFT writes them with "
        "transformers 5 (load the adapter there and save it again)"
      )

  def names(self) -> Collection[str]:
    """Returns the names of all tensors."""
    return self._others | self._leaves.keys()

  def shape(self, name: str) -> tuple[int, ...]:
    """Returns a tensor's shape without reading it.

    Raises:
      ValueError: the tensor has another rank than the config implies.
    """
    own = self._leaves.get(name)
    if own is None:
      return self._reader.shape(name)
    self._file_rank(own)
    first, second = self._reader.shape(own.tensor)
    if own.leaf == "a":
      return self._experts, second, self._rank
    outer = first if own.name == "down" else first // 2
    return self._experts, self._rank, outer

  def _file_rank(self, own: _Leaf) -> int:
    """Returns the rank of a tensor in the file."""
    shape = self._reader.shape(own.tensor)
    ranks = [self._rank] if own.name == "down" else [self._rank, 2 * self._rank]
    sizes = [self._experts * rank for rank in ranks]
    axis, lines = (0, "rows") if own.leaf == "a" else (1, "columns")
    if len(shape) != 2 or shape[axis] not in sizes:
      raise ValueError(
        f"{self.path}: tensor {own.tensor} has shape {shape}: expected "
        f"{' or '.join(map(str, sizes))} {lines}"
      )
    return shape[axis] // self._experts

  def read(
    self, name: str, index: tuple[slice, ...]
  ) -> Float[np.ndarray, "..."]:
    """Reads a range of a tensor: one slice of step 1 per axis.

    Raises:
      ValueError: B is not 0 outside of the blocks of gate and up.
    """
    own = self._leaves.get(name)
    if own is None:
      return self._reader.read(name, index)
    rank = self._file_rank(own)
    # Gate has the first half of a double rank.
    begin = self._rank if rank > self._rank and own.name == "up" else 0
    if own.leaf == "a":
      experts, inner, numbers = index
      rows = slice(experts.start * rank, experts.stop * rank)
      found = self._reader.read(own.tensor, (rows, inner))
      found = found.reshape(-1, rank, found.shape[-1]).swapaxes(1, 2)
      return found[..., begin + numbers.start : begin + numbers.stop]
    experts, numbers, outer = index
    found = self._read_b(own, outer, rank).transpose(2, 1, 0)[experts]
    is_own = np.zeros(rank, bool)
    is_own[begin : begin + self._rank] = True
    if np.any(found[:, ~is_own]):
      raise ValueError(
        f"{self.path}: tensor {own.tensor} mixes gate and up: expected half of "
        "the rank for each, or one A for both with the rank of down_proj"
      )
    return found[:, is_own][:, numbers]

  def _read_b(
    self, own: _Leaf, outer: slice, rank: int
  ) -> Float[np.ndarray, "outer rank X"]:
    """Reads the rows of a projection's outputs."""
    rows, columns = self._reader.shape(own.tensor)
    step, first = 1, outer.start
    if own.name != "down" and self._interleaved:
      step, first = 2, 2 * outer.start + (own.name == "up")
    elif own.name == "up":
      first += rows // 2
    count = outer.stop - outer.start
    at = slice(first, first + step * (count - 1) + 1), slice(0, columns)
    found = self._reader.read(own.tensor, at)[::step]
    return found.reshape(count, rank, self._experts)


def pack(
  tensors: Mapping[str, Float[np.ndarray, "..."]], config: ModelConfig
) -> dict[str, Float[np.ndarray, "..."]]:
  """Returns the tensors of a file, of which `ExpertsReader` reads `tensors`.

  Args:
    tensors: all tensors; those of experts are named by
      `weight_names.expert_adapter`.
    config: the base model's config.
  """
  found: dict[str, Float[np.ndarray, ...]] = {}
  by_module: dict[str, dict[str, Float[np.ndarray, ...]]] = {}
  for name, value in tensors.items():
    module, is_expert, leaf = name.partition(f".{MODULE}.")
    if is_expert:
      by_module.setdefault(f"{module}.{MODULE}", {})[leaf] = value
    else:
      found[name] = value
  for module, own in by_module.items():
    if "gate.a" in own:
      a = np.concatenate([own["gate.a"], own["up.a"]], axis=-1)
      b = _joined(own["gate.b"], own["up.b"], config)
      _put(found, module + ".base_layer" * ("down.a" in own), a, b)
    if "down.a" in own:
      _put(found, module, own["down.a"], own["down.b"].transpose(2, 1, 0))
  return found


def _joined(
  gate: Float[np.ndarray, "X rank outer"],
  up: Float[np.ndarray, "X rank outer"],
  config: ModelConfig,
) -> Float32[np.ndarray, "outer2 rank2 X"]:
  """Returns B of gate and up as two blocks."""
  experts, rank, outer = gate.shape
  b = np.zeros((2 * outer, 2 * rank, experts), np.float32)
  rows = slice(0, outer), slice(outer, None)
  if _is_interleaved(config):
    rows = slice(0, None, 2), slice(1, None, 2)
  b[rows[0], :rank] = gate.transpose(2, 1, 0)
  b[rows[1], rank:] = up.transpose(2, 1, 0)
  return b


def _put(
  found: dict[str, Float[np.ndarray, "..."]],
  module: str,
  a: Float[np.ndarray, "X inner rank"],
  b: Float[np.ndarray, "outer rank X"],
) -> None:
  """Adds the two tensors of a wrapped module."""
  a = a.swapaxes(1, 2)
  found[f"{module}.lora_A.weight"] = a.reshape(-1, a.shape[-1])
  found[f"{module}.lora_B.weight"] = b.reshape(b.shape[0], -1)


def _is_interleaved(config: ModelConfig) -> bool:
  """Returns whether outputs of gate and up alternate in their parameter."""
  return bool(registry.of(config).expert_tensors)
