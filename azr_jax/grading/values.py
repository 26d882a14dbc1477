"""Type-aware equality of Python values given as text."""

from azr_jax.executor import literals


def values_equal(gold: str, answer: str) -> bool:
  """Whether both texts are literals of the same typed value.

  The rules are the table in `executor/literals.py`. A text that is no
  literal equals nothing, not even itself.
  """
  try:
    return literals.typed_key(gold) == literals.typed_key(answer)
  except literals.ParseError:
    return False
