"""Matrices in compressed rows, which clients send for few listed cells."""

from typing import TypeAlias

import numpy as np
from jaxtyping import Int64, Shaped

from azr_jax.serving.errors import ApiError

# A larger matrix would be mostly zeros: a request holds far fewer numbers.
_MAX_CELLS = 1 << 26
# The ends of the rows among the listed cells, after a 0, and the columns of
# these.
Layout: TypeAlias = tuple[Int64[np.ndarray, " _S"], Int64[np.ndarray, " _N"]]


def dense(
  what: str,
  values: Shaped[np.ndarray, " _N"],
  layout: Layout,
  shape: tuple[int, ...],
  missing: int = 0,
) -> Shaped[np.ndarray, "_S K"]:
  """Returns the matrix of some listed cells.

  Args:
    what: names the matrix in errors.
    values: the listed cells.
    layout: where they are.
    shape: the shape of the matrix.
    missing: the value of all other cells.

  Raises:
    ApiError: the layout does not fit the values or the shape.
  """
  ends, columns = layout
  counts = np.diff(ends)
  is_valid = (
    len(shape) == 2
    and min(shape) >= 0
    and shape[0] * shape[1] <= _MAX_CELLS
    and len(ends) == shape[0] + 1
    and len(values) == len(columns) == (ends[-1] if len(ends) else -1)
    and (ends[0] == 0 and counts.min(initial=0) >= 0)
    and (not columns.size or (0 <= columns.min() and columns.max() < shape[1]))
  )
  if not is_valid:
    raise ApiError(
      400,
      f"{what}: expected a sparse matrix of shape {shape}, with at most "
      f"{_MAX_CELLS} cells",
    )
  found = np.full(shape, missing, values.dtype)
  found[np.repeat(np.arange(shape[0]), counts), columns] = values
  return found


def listed(
  values: Shaped[np.ndarray, "_S K"], layout: Layout
) -> Shaped[np.ndarray, " _N"]:
  """Returns the listed cells of a matrix; the inverse of `dense`."""
  ends, columns = layout
  return values[np.repeat(np.arange(len(values)), np.diff(ends)), columns]
