"""Gemma 3 with a vision tower (4B, 12B, 27B): the fields of its text decoder.

In config.json, `text_config` holds the fields of `gemma3.py`. The rest
describes images, which nothing here reads.
"""

from typing import Any

from azr_jax.models.families.fields import ConfigFields, unsupported
from azr_jax.models.families.gemma3 import FAMILY

NAME = "gemma3"
_TEXT, _TIE = "text_config", "tie_word_embeddings"
# Published files leave out what transformers has as a default.
_DEFAULTS = {
  "model_type": FAMILY.name,
  "vocab_size": 262_208,
  "hidden_size": 2304,
  "intermediate_size": 9216,
  "num_hidden_layers": 26,
  "num_attention_heads": 8,
  "num_key_value_heads": 4,
  "head_dim": 256,
  "max_position_embeddings": 131_072,
  "rms_norm_eps": 1e-6,
  "sliding_window": 4096,
  _TIE: True,
}


def text_fields(fields: ConfigFields) -> dict[str, Any]:
  """Returns the config.json of the text decoder alone.

  Raises:
    ValueError: there is no text decoder, or not Gemma's, or the two parts
      contradict each other.
  """
  fields.ignore("vision_config", "mm_tokens_per_image")
  fields.ignore(*(f"{name}_token_index" for name in ("boi", "eoi", "image")))
  given = fields.take(_TEXT)
  if not isinstance(given, dict):
    raise unsupported(_TEXT, given, "an object")
  given = {key: value for key, value in given.items() if value is not None}
  text = _DEFAULTS | given
  if text["model_type"] != FAMILY.name:
    raise unsupported(_TEXT, given, f"model_type={FAMILY.name!r}")
  fields.require(**{_TIE: text[_TIE]})
  return text
