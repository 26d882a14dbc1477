"""Whether two texts are the same Python value."""

from azr_jax.grading import literals


def values_equal(gold: str, answer: str) -> bool:
  """Compares two literals by type and value; see `literals.typed_key`.

  Text that is no literal equals nothing, itself included.
  """
  try:
    return literals.typed_key(gold) == literals.typed_key(answer)
  except literals.ParseError:
    return False
