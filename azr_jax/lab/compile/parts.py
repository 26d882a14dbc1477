"""Maps an operation of a compiled program to a part of the model.

XLA keeps the name path that an operation was traced in: the model's modules,
and the names that `jax.named_scope` adds.
"""

import collections
import re

from azr_jax.lab.compile.hlo import Module, Operation

EMBEDDING = "embedding"
NORMS = "norms, rope"
PROJECTIONS = "q, k, v, o"
ATTENTION = "attention"
MLP = "mlp"
LOGITS = "logits"
SAMPLING = "token sampling"
CACHE = "cache writes"
OPTIMIZER = "optimizer"
OTHER = "other"
# In forward-pass order, the optimizer last.
PARTS = (
  EMBEDDING,
  NORMS,
  PROJECTIONS,
  ATTENTION,
  MLP,
  LOGITS,
  SAMPLING,
  CACHE,
  OPTIMIZER,
  OTHER,
)
# Path component -> part. The first entry that occurs in the path applies.
_BY_WORD = {
  "optimizer": OPTIMIZER,
  "token_sampling": SAMPLING,
  "_threefry_fold_in": SAMPLING,
  "logits": LOGITS,
  "attend": ATTENTION,
  "cache_write": CACHE,
  "rope": NORMS,
  "q_norm": NORMS,
  "k_norm": NORMS,
  "attention_norm": NORMS,
  "mlp_norm": NORMS,
  "final_norm": NORMS,
  "mlp": MLP,
  "experts": MLP,
}
_PROJECTION_WORDS = frozenset(("q", "k", "v", "qkv", "o"))
_PRODUCTS = ("dot", "convolution")
_SEPARATORS = re.compile(r"[/()]+")


def part_of_path(op_name: str) -> str:
  """Returns the part that a name path belongs to."""
  words = [word for word in _SEPARATORS.split(op_name) if word]
  known = set(words)
  for word, part in _BY_WORD.items():
    if word in known:
      return part
  if "attention" in known:
    index = words.index("attention")
    # The path may have a method of the module before the projection.
    is_product = bool(_PROJECTION_WORDS & set(words[index + 1 : index + 3]))
    return PROJECTIONS if is_product else NORMS
  if "Transformer" in known and words[-1] in ("gather", "scatter-add"):
    return EMBEDDING
  return OTHER


class Finder:
  """Finds the part of any operation in a program, even without a name."""

  def __init__(self, program: Module):
    self._program = program
    self._ref_counts: dict[str, list[Operation]] = collections.defaultdict(list)
    for op in program.operations.values():
      for name in op.operands:
        self._ref_counts[name].append(op)

  def part(self, op: Operation) -> str:
    """Returns an operation's part.

    A fusion carries the name of its last operation, but belongs to the matrix
    product inside it, whatever else was fused. An operation without a name,
    such as a copy that the compiler added, belongs to the part of what it
    contains, reads or is read by.
    """
    inner = list(self._program.inner(op))
    products = [other for other in inner if other.kind in _PRODUCTS]
    for one in (*products, op):
      if (part := part_of_path(one.op_name)) != OTHER:
        return part
    operations = self._program.operations
    near = [
      inner,
      []
      if "/" in op.op_name
      else [operations[name] for name in op.operands if name in operations],
      [] if "/" in op.op_name else self._ref_counts[op.name],
    ]
    for neighbours in near:
      found = collections.Counter(
        part
        for other in neighbours
        if other.kind not in ("while", "tuple")
        and (part := part_of_path(other.op_name)) != OTHER
      )
      if found:
        return found.most_common(1)[0][0]
    return OTHER
