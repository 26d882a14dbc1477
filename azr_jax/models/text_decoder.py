"""The text decoder of a checkpoint that also has a vision tower."""

import pathlib
from collections.abc import Collection

import numpy as np
from jaxtyping import Float

from azr_jax.models.weight_loading import TensorReader

# How names begin in such files, and in those of a decoder alone. They depend on
# the version of transformers that wrote them.
_TEXT = {
  "language_model.model.": "model.",
  "language_model.lm_head.": "lm_head.",
  "model.language_model.": "model.",
}
# Tensors that compute the embeddings of images.
_VISION = (
  *("vision_tower.", "multi_modal_projector."),
  *("model.vision_tower.", "model.multi_modal_projector."),
)


def alone(reader: TensorReader) -> TensorReader:
  """Returns a reader of the text decoder; other checkpoints stay as they are.

  Raises:
    ValueError: the checkpoint has a tensor of the decoder under two names.
  """
  is_wrapped = any(name.startswith(tuple(_TEXT)) for name in reader.names())
  return TextReader(reader) if is_wrapped else reader


class TextReader:
  """Reads a checkpoint's text decoder under its usual names.

  A `TensorReader`. The tensors of images are missing.
  """

  def __init__(self, reader: TensorReader):
    """Lists the tensors, without reading them; see `alone`."""
    self.path: pathlib.Path = reader.path
    self._reader = reader
    self._stored: dict[str, str] = {}
    for stored in reader.names():
      if stored.startswith(_VISION):
        continue
      name = _alone(stored)
      if name in self._stored:
        raise ValueError(
          f"{self.path}: tensors {self._stored[name]} and {stored}: expected "
          f"one of them, for {name} of the text decoder"
        )
      self._stored[name] = stored

  def names(self) -> Collection[str]:
    """Returns the names of all tensors but those of images."""
    return self._stored.keys()

  def shape(self, name: str) -> tuple[int, ...]:
    """Returns a tensor's shape without reading it."""
    return self._reader.shape(self._stored[name])

  def read(
    self, name: str, index: tuple[slice, ...]
  ) -> Float[np.ndarray, "..."]:
    """Reads a range of a tensor: one slice of step 1 per axis."""
    return self._reader.read(self._stored[name], index)


def _alone(stored: str) -> str:
  """Returns the name of a tensor in a checkpoint of the decoder alone."""
  for prefix, usual in _TEXT.items():
    if stored.startswith(prefix):
      return usual + stored.removeprefix(prefix)
  return stored
