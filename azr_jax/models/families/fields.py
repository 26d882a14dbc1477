"""The fields of a Hugging Face `config.json`, read one by one.

Every field is taken by a family, ignored for a known reason, or rejected by
name. Silently dropping a field would load a different model.
"""

from collections.abc import Mapping
from typing import Any

from azr_jax.config import user_files
from azr_jax.models.config import MAX_FLOAT

# Fields that no family reads: labels, training settings, and token ids, which
# the tokenizer's files have.
_IGNORED = {
  "architectures",
  "torch_dtype",
  "dtype",
  "transformers_version",
  "use_cache",
  "initializer_range",
  "attention_dropout",
  "bos_token_id",
  "eos_token_id",
  "pad_token_id",
  "unk_token_id",
  "pretraining_tp",
  "transformers.js_config",
  "_name_or_path",
  "_attn_implementation_autoset",
  "name_or_path",
  "return_dict",
  "output_hidden_states",
  "output_attentions",
  "chunk_size_feed_forward",
  "id2label",
  "label2id",
  "problem_type",
}
# Prefixes of fields that training tools add for themselves.
_TOOLS = ("unsloth_",)
# Upper limit of sizes; larger ones come from damaged files.
_MAX_SIZE = 1 << 31
FULL, SLIDING = "full_attention", "sliding_attention"


def unsupported(key: str, value: object, expected: str) -> ValueError:
  """Returns the error for a value that no decoder implements."""
  return user_files.Refusal(f"{key}={value!r}: expected {expected}")


def positive(key: str, value: Any) -> float:
  """Returns a field's value if it is a positive number."""
  if type(value) not in (int, float) or not 0 < value < MAX_FLOAT:
    raise unsupported(key, value, "a positive number")
  return float(value)


def size(key: str, value: Any) -> int:
  """Returns a field's value if it is a positive integer."""
  if type(value) is not int or not 0 < value < _MAX_SIZE:
    raise unsupported(key, value, "a positive integer")
  return value


class ConfigFields:
  """The fields that nobody has taken yet.

  A field whose value is null counts as missing.
  """

  def __init__(self, config: Mapping[str, Any]):
    """Starts with all fields of a config.json."""
    self._config = config
    self._rest = {*config}

  def take(self, key: str, default: Any = None) -> Any:
    """Returns a field's value, or the default if it is missing."""
    self._rest.discard(key)
    value = self._config.get(key)
    return default if value is None else value

  def size(self, key: str, default: int | None = None) -> int:
    """Returns a positive integer."""
    return size(key, self.take(key, default))

  def positive(self, key: str, default: float | None = None) -> float:
    """Returns a positive number."""
    return positive(key, self.take(key, default))

  def flag(self, key: str, default: bool) -> bool:
    """Returns a boolean."""
    value = self.take(key, default)
    if not isinstance(value, bool):
      raise unsupported(key, value, "true or false")
    return value

  def require(self, **values: Any) -> None:
    """Checks fields of which the decoder implements a single value.

    Raises:
      ValueError: a field has another value, and is not missing.
    """
    for key, expected in values.items():
      found = self.take(key, expected)
      if found != expected:
        wanted = "null" if expected is None else repr(expected)
        raise unsupported(key, found, wanted)

  def ignore(self, *keys: str) -> None:
    """Takes fields that do not change what the decoder computes."""
    self._rest.difference_update(keys)

  def windows(self, default: list[str], limit: int | None) -> tuple[int, ...]:
    """Returns the window of each layer, () if none has one.

    Args:
      default: the kinds of all layers, if `layer_types` is missing.
      limit: maximum sequence length; longer windows hide nothing and are left
        out. None keeps them, because they tell which layers rotate otherwise.
    """
    kinds = self.take("layer_types", default)
    if not isinstance(kinds, list) or len(kinds) != len(default):
      raise unsupported("layer_types", kinds, f"a list of {len(default)} kinds")
    if not {*kinds} <= {FULL, SLIDING}:
      raise unsupported("layer_types", kinds, f"{FULL} or {SLIDING}")
    width = self.take("sliding_window")
    if SLIDING not in kinds:
      return ()
    width = size("sliding_window", width)
    if limit is not None and width >= limit:
      return ()
    return tuple(width if kind == SLIDING else 0 for kind in kinds)

  def finish(self) -> None:
    """Checks that every field was taken.

    Raises:
      ValueError: a field is unknown.
    """
    for key, value in self._config.items():
      if key not in self._rest or key in _IGNORED or key.startswith(_TOOLS):
        continue
      if key == "auto_map":
        raise unsupported(key, value, "no custom code, which is never run")
      raise unsupported(key, value, "a field that this decoder supports")
