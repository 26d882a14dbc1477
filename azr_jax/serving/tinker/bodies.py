"""Fields of JSON bodies; unknown ones are ignored, because the SDK moves on."""

import math
from collections.abc import Mapping
from typing import Any

from azr_jax.serving import errors
from azr_jax.verbs.programs import Adam


def text(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
  """Returns a text field.

  Raises:
    ApiError: it is missing without a default, or no text.
  """
  value = body.get(name)
  if value is None and default is not None:
    return default
  if not isinstance(value, str):
    errors.refuse_field(name, value, "a text")
  return value


def integer(
  body: Mapping[str, Any],
  name: str,
  default: int | None = None,
  minimum: int = 0,
  maximum: int = 1 << 62,
) -> int:
  """Returns an integer field.

  Raises:
    ApiError: it is missing without a default, no integer, or out of range.
  """
  value = body.get(name)
  if value is None and default is not None:
    return default
  is_integer = isinstance(value, int) and not isinstance(value, bool)
  if not is_integer or not minimum <= value <= maximum:
    errors.refuse_field(name, value, f"an integer from {minimum} to {maximum}")
  return value


def number(
  body: Mapping[str, Any], name: str, default: float, minimum: float = -math.inf
) -> float:
  """Returns a number field.

  Raises:
    ApiError: it is no finite number, or below the minimum.
  """
  value = body.get(name)
  if value is None:
    return default
  is_number = isinstance(value, int | float) and not isinstance(value, bool)
  if not is_number or not math.isfinite(value) or value < minimum:
    expected = "a finite number"
    if minimum > -math.inf:
      expected += f" of at least {minimum:g}"
    errors.refuse_field(name, value, expected)
  return float(value)


def mapping(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
  """Returns an object field; {} if it is missing.

  Raises:
    ApiError: it is no object.
  """
  value = body.get(name)
  if value is None:
    return {}
  if not isinstance(value, dict):
    errors.refuse_field(name, value, "an object")
  return value


def operation(body: Mapping[str, Any]) -> tuple[str, int]:
  """Returns the model and the number of an operation.

  Raises:
    ApiError: one is missing or invalid.
  """
  return text(body, "model_id"), integer(body, "seq_id")


def adam(body: Mapping[str, Any]) -> Adam:
  """Returns the numbers of an `optim_step`.

  Raises:
    ApiError: a number is invalid, or the optimizer is not AdamW.
  """
  if body.get("optimizer_params") is not None:
    errors.refuse_field(
      "optimizer_params", body["optimizer_params"], "adam_params"
    )
  given = mapping(body, "adam_params")
  defaults = Adam()
  return Adam(
    number(given, "learning_rate", defaults.learning_rate, 0),
    number(given, "beta1", defaults.beta1, 0),
    number(given, "beta2", defaults.beta2, 0),
    number(given, "eps", defaults.eps, 0),
    number(given, "weight_decay", defaults.weight_decay, 0),
    number(given, "grad_clip_norm", defaults.grad_clip_norm, 0),
  )
