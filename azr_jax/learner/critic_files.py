"""Critics in safetensors folders, for `transformers` and other trainers.

The decoder's tensors have their usual names; there is no output head. The value
head is written under the two names that other programs read:

| tensor | read by |
| --- | --- |
| `score.weight` [1, D], `score.bias` [1] | `AutoModelForTokenClassification` |
| `value_head.weight` [1, D] | critics of ORZ and OpenRLHF |
"""

import math
import pathlib
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from azr_jax.learner import value_model
from azr_jax.models import (
  adapters,
  safetensors_io,
  transformer,
  weight_loading,
  weight_names,
)
from azr_jax.models.config import ModelConfig
from azr_jax.models.safetensors_io import SafetensorsReader
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Params, Rules

_HEAD, _SCORE, _BIAS = "value_head.weight", "score.weight", "score.bias"
# Tensors that a critic's files may have besides the decoder's.
_UNREAD = (_HEAD, _SCORE, _BIAS, "lm_head.weight")
# One label, whose logit is the value; `transformers` counts the labels.
_FIELDS = {
  "id2label": {"0": "value"},
  "label2id": {"value": 0},
  "classifier_dropout": 0.0,
}


def save(
  params: Params,
  config: ModelConfig,
  folder: pathlib.Path,
  *,
  dtype: str,
  eos_ids: Sequence[int] = (),
  lora: adapters.Lora | None = None,
) -> None:
  """Writes a critic; see `safetensors_io.save`.

  Args:
    params: the critic's parameters, with `value_model.HEAD`.
    config: the policy's config.
    folder: created if missing.
    dtype: a key of `safetensors_io.DTYPES`.
    eos_ids: EOS token ids.
    lora: the adapters in `params`, to merge.
  """
  own = value_model.decoder(transformer.Transformer(config)).config
  D = config.hidden_size
  entry = weight_names.Entry((value_model.HEAD,), _HEAD, (D,), False)
  head = weight_loading.fetch(params, entry, ())[None]
  safetensors_io.save(
    {name: value for name, value in params.items() if name != value_model.HEAD},
    own,
    folder,
    dtype=dtype,
    eos_ids=eos_ids,
    lora=lora,
    more={_HEAD: head, _SCORE: head, _BIAS: np.zeros(1, np.float32)},
    task="TokenClassification",
    fields=_FIELDS,
  )


def load(
  model: transformer.Transformer,
  folder: pathlib.Path,
  mesh: Mesh,
  rules: Rules,
) -> Params:
  """Returns a critic's parameters, in the learner's dtypes and sharded.

  Args:
    model: the policy's decoder, without adapters.
    folder: a critic that `save` wrote, or another in one of its formats.
    mesh: the mesh of the parameters.
    rules: logical axis to mesh axis.

  Raises:
    ValueError: the folder has no value head, or another decoder.
  """
  reader = SafetensorsReader(folder)
  boxed = value_model.abstract_params(model)
  head = _read_head(reader, model.config.hidden_size)
  # The file may also have the output head of the model that it started from.
  decoder = value_model.decoder(model)
  params = weight_loading.load_entries(
    [*weight_names.entries(decoder.config)],
    model.config.num_layers,
    boxed,
    reader,
    mesh,
    rules,
    model.param_dtype,
    unread=_UNREAD,
  )
  sharding = mesh_lib.param_shardings(boxed, mesh, rules)[value_model.HEAD]
  placed = jax.make_array_from_callback(
    head.shape, sharding, lambda index: head[index]
  )
  return params | {value_model.HEAD: placed}


def _read_head(reader: SafetensorsReader, size: int) -> Float[np.ndarray, " D"]:
  """Returns the value head.

  ORZ's released 32B has it in rows, one for each of the 8 devices that saved
  it.

  Args:
    reader: the critic's files.
    size: D.

  Raises:
    ValueError: there is none of D numbers, or it has a bias.
  """
  if _BIAS in reader.names() and reader.read(_BIAS, (slice(0, 1),))[0]:
    raise ValueError(
      f"{reader.path}: tensor {_BIAS} is not 0: expected a value head without "
      "a bias"
    )
  for name in (_HEAD, _SCORE):
    if name in reader.names() and math.prod(reader.shape(name)) == size:
      whole = tuple(slice(0, n) for n in reader.shape(name))
      return reader.read(name, whole).astype(np.float32).reshape(-1)
  raise ValueError(
    f"{reader.path}: expected a critic, with {size} numbers in {_HEAD} or "
    f"{_SCORE}"
  )
