"""The rotary parameters of a Hugging Face `config.json`."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from azr_jax.models.config import (
  LinearRopeScaling,
  Llama3RopeScaling,
  LongRopeScaling,
  ModelConfig,
  RopeScaling,
  YarnRopeScaling,
)
from azr_jax.models.families.fields import (
  FULL,
  SLIDING,
  ConfigFields,
  positive,
  size,
  unsupported,
)

NEW, OLD = "rope_parameters", "rope_scaling"
_ORIGINAL = "original_max_position_embeddings"
# Scalings that most families have in some published model.
USUAL = ("default", "llama3", "yarn")


@dataclasses.dataclass(frozen=True)
class Rope:
  """What the decoder reads of an object with rotary parameters.

  Attributes:
    theta: base of the frequencies.
    scaling: their scaling, or None.
    fraction: fraction of a head's channels that are rotated.
  """

  theta: float
  scaling: RopeScaling | None = None
  fraction: float = 1.0


def read(
  fields: ConfigFields,
  default_theta: float = 10000.0,
  kinds: tuple[str, ...] = USUAL,
) -> Rope:
  """Reads `rope_parameters`, or the older `rope_theta` and `rope_scaling`.

  Args:
    fields: the fields of a config.json.
    default_theta: the base if no field has it.
    kinds: the values of `rope_type` that the family has.

  Raises:
    ValueError: the fields contradict each other, or have a value that the
      decoder does not implement.
  """
  new, old = fields.take(NEW), fields.take(OLD)
  for field, value in ((NEW, new), (OLD, old)):
    if not isinstance(value, dict | None):
      raise unsupported(field, value, "an object")
  if new and old and old != new:
    raise unsupported(OLD, old, f"{new}, as in `{NEW}`")
  field, given = (NEW, new) if new else (OLD, old or {})
  return parse(field, given, fields.take("rope_theta"), default_theta, kinds)


def parse(
  field: str,
  given: Mapping[str, Any],
  theta: Any,
  default_theta: float,
  kinds: tuple[str, ...] = USUAL,
) -> Rope:
  """Reads one object.

  Args:
    field: the field that holds it, for messages.
    given: the object.
    theta: the value of `rope_theta` outside of it, or None.
    default_theta: the base if neither has it.
    kinds: the values of `rope_type` that the family has.
  """
  rest = dict(given)
  nested = rest.pop("rope_theta", None)
  if None not in (nested, theta) and nested != theta:
    raise unsupported("rope_theta", theta, f"{nested}, as in the {field}")
  named = nested if theta is None else theta
  base = positive("rope_theta", default_theta if named is None else named)
  fraction = rest.pop("partial_rotary_factor", None)
  fraction = 1.0 if fraction is None else fraction
  is_fraction = type(fraction) in (int, float) and 0 < fraction <= 1
  if not is_fraction or (fraction != 1 and "longrope" not in kinds):
    raise unsupported(field, given, "partial_rotary_factor=1.0")
  old_kind = rest.pop("type", "default")
  kind = rest.pop("rope_type", old_kind)
  if kind not in kinds:
    raise unsupported(field, given, f"a rope_type of {', '.join(kinds)}")
  if kind == "default":
    if rest:
      raise unsupported(field, given, "no parameters for `default`")
    return Rope(base, None, float(fraction))
  try:
    scaling = _PARSERS[kind](rest)
  except KeyError as missing:
    raise unsupported(field, given, f"{missing} for `{kind}`") from None
  if rest:
    raise unsupported(field, given, f"`{kind}` without {sorted(rest)}")
  return Rope(base, scaling, float(fraction))


def _linear(rest: dict[str, Any]) -> LinearRopeScaling:
  return LinearRopeScaling(positive("factor", rest.pop("factor")))


def _llama3(rest: dict[str, Any]) -> Llama3RopeScaling:
  low, high = "low_freq_factor", "high_freq_factor"
  return Llama3RopeScaling(
    factor=positive("factor", rest.pop("factor")),
    low_freq_factor=positive(low, rest.pop(low)),
    high_freq_factor=positive(high, rest.pop(high)),
    original_max_position=size(_ORIGINAL, rest.pop(_ORIGINAL)),
  )


def _yarn(rest: dict[str, Any]) -> YarnRopeScaling:
  """Reads YaRN's parameters; null stands for a default."""
  factor = positive("factor", rest.pop("factor"))
  original = size(_ORIGINAL, rest.pop(_ORIGINAL))
  for key, default in (("beta_fast", 32), ("beta_slow", 1), ("truncate", True)):
    rest[key] = default if rest.get(key) is None else rest[key]
  truncate = rest.pop("truncate")
  if not isinstance(truncate, bool):
    raise unsupported("truncate", truncate, "true or false")
  mscale, of_all = rest.pop("mscale", None), rest.pop("mscale_all_dim", None)
  given = rest.pop("attention_factor", None)
  if given is None:
    given = _yarn_magnitude(factor, 1.0)
    if mscale and of_all:
      given = _yarn_magnitude(factor, positive("mscale", mscale))
      given /= _yarn_magnitude(factor, positive("mscale_all_dim", of_all))
  return YarnRopeScaling(
    factor,
    original,
    positive("attention_factor", given),
    positive("beta_fast", rest.pop("beta_fast")),
    positive("beta_slow", rest.pop("beta_slow")),
    truncate,
  )


def _yarn_magnitude(factor: float, scale: float) -> float:
  """Returns the factor of queries and keys (arXiv 2309.00071, equation 22)."""
  return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _longrope(rest: dict[str, Any]) -> LongRopeScaling:
  """Reads LongRoPE's parameters.

  The config's maximum length, which sets the default of `factor`, is in `rest`
  too (`phi3.py`).
  """
  original = size(_ORIGINAL, rest.pop(_ORIGINAL))
  longest = rest.pop("max_position_embeddings")
  factor = rest.pop("factor", None) or longest / original
  given = rest.pop("attention_factor", None)
  if given is None:
    given = 1.0
    if positive("factor", factor) > 1:
      given = math.sqrt(1 + math.log(factor) / math.log(original))
  return LongRopeScaling(
    _factors("short_factor", rest),
    _factors("long_factor", rest),
    original,
    positive("attention_factor", given),
  )


def _factors(key: str, rest: dict[str, Any]) -> tuple[float, ...]:
  """Takes a list of divisors."""
  values = rest.pop(key)
  if not isinstance(values, list):
    raise unsupported(key, values, "a list of positive numbers")
  return tuple(positive(key, value) for value in values)


_PARSERS: Mapping[str, Callable[[dict[str, Any]], RopeScaling]] = {
  "linear": _linear,
  "llama3": _llama3,
  "yarn": _yarn,
  "longrope": _longrope,
}


def write(scaling: RopeScaling | None) -> dict[str, Any] | None:
  """Returns the object of a scaling, or None without one."""
  match scaling:
    case LinearRopeScaling():
      return {"rope_type": "linear", "factor": scaling.factor}
    case Llama3RopeScaling():
      return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        _ORIGINAL: scaling.original_max_position,
      }
    case YarnRopeScaling():
      return {
        "rope_type": "yarn",
        "factor": scaling.factor,
        _ORIGINAL: scaling.original_max_position,
        "attention_factor": scaling.attention_factor,
        "beta_fast": scaling.beta_fast,
        "beta_slow": scaling.beta_slow,
        "truncate": scaling.truncate,
      }
    case LongRopeScaling():
      return {
        "rope_type": "longrope",
        "short_factor": [*scaling.short_factors],
        "long_factor": [*scaling.long_factors],
        _ORIGINAL: scaling.original_max_position,
        "attention_factor": scaling.attention_factor,
      }
  return None


def write_by_kind(config: ModelConfig) -> dict[str, Any]:
  """Returns `rope_parameters` with an object per kind of layer."""
  theta, local = config.rope_theta, config.local_rope_theta
  full = write(config.rope_scaling) or {"rope_type": "default"}
  return {
    FULL: full | {"rope_theta": theta},
    SLIDING: {
      "rope_type": "default",
      "rope_theta": theta if local is None else local,
    },
  }


def read_by_kind(
  fields: ConfigFields,
  theta: float,
  local_theta: float | None,
  kinds: tuple[str, ...],
) -> tuple[Rope, float]:
  """Reads the rotary parameters of full and of sliding attention.

  They are in `rope_parameters` with an object for each or, in older files, in
  `rope_theta`, `rope_scaling` and `rope_local_base_freq`.

  Args:
    fields: the fields of a config.json.
    theta: the default base of full attention.
    local_theta: the default base of sliding attention. None: the other's.
    kinds: the values of `rope_type` of full attention.

  Returns:
    The rotation of full attention, and the base of sliding attention.
  """
  named = fields.take("rope_local_base_freq")
  if named is not None:
    local_theta = positive("rope_local_base_freq", named)
  nested = fields.take(NEW)
  if not isinstance(nested, dict) or not {*nested} & {FULL, SLIDING}:
    rope = read(fields, theta, kinds)
    return rope, rope.theta if local_theta is None else local_theta
  if {*nested} - {FULL, SLIDING}:
    raise unsupported(NEW, nested, f"objects {FULL} and {SLIDING}")
  if fields.take(OLD) is not None:
    raise unsupported(OLD, fields.take(OLD), f"none beside `{NEW}`")
  outer = fields.take("rope_theta")
  full = nested.get(FULL) or {}
  rope = parse(NEW, full, outer, theta, kinds)
  default = rope.theta if local_theta is None else local_theta
  local = parse(NEW, nested.get(SLIDING) or {}, None, default, ("default",))
  return rope, local.theta
