"""Which part of the model an operation of a compiled program belongs to.

XLA keeps the path of names that an operation was made from: the modules of the
model, and what `jax.named_scope` adds.
"""

import collections
import re

from azr_jax.perf.hlo import Operation, Program

EMBEDDING = "embedding"
NORMS = "norms, rope"
PROJECTIONS = "q, k, v, o"
ATTENTION = "attention"
MLP = "mlp"
LOGITS = "logits"
CHOICE = "token choice"
CACHE = "cache writes"
OPTIMIZER = "optimizer"
OTHER = "other"
# In the order of a forward pass.
PARTS = (
  EMBEDDING,
  NORMS,
  PROJECTIONS,
  ATTENTION,
  MLP,
  LOGITS,
  CHOICE,
  CACHE,
  OPTIMIZER,
  OTHER,
)
# A word of the path -> part; the first word of this table that a path has.
_BY_WORD = {
  "optimizer": OPTIMIZER,
  "token_choice": CHOICE,
  "_threefry_fold_in": CHOICE,
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
}
_PROJECTION_WORDS = frozenset(("q", "k", "v", "qkv", "o"))
_SEPARATORS = re.compile(r"[/()]+")


def part_of_path(op_name: str) -> str:
  """Returns the part that a path of names stands for."""
  words = [word for word in _SEPARATORS.split(op_name) if word]
  known = set(words)
  for word, part in _BY_WORD.items():
    if word in known:
      return part
  if "attention" in known:
    index = words.index("attention")
    is_product = bool(_PROJECTION_WORDS & set(words[index + 1 : index + 2]))
    return PROJECTIONS if is_product else NORMS
  if "Transformer" in known and words[-1] in ("gather", "scatter-add"):
    return EMBEDDING
  return OTHER


class Finder:
  """Finds the parts of a program's operations, also of those without names."""

  def __init__(self, program: Program):
    self._program = program
    self._users: dict[str, list[Operation]] = collections.defaultdict(list)
    for op in program.operations.values():
      for name in op.operands:
        self._users[name].append(op)

  def part(self, op: Operation) -> str:
    """Returns an operation's part.

    One without a name, such as a copy that the compiler added, belongs to what
    it holds, reads or is read by.
    """
    if "/" in op.op_name:
      return part_of_path(op.op_name)
    operations = self._program.operations
    near = [
      list(self._program.inner(op)),
      [operations[name] for name in op.operands if name in operations],
      self._users[op.name],
    ]
    for neighbours in near:
      found = collections.Counter(
        part_of_path(other.op_name)
        for other in neighbours
        if "/" in other.op_name and other.kind not in ("while", "tuple")
      )
      if found:
        return found.most_common(1)[0][0]
    return OTHER
