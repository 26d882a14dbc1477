"""Formulas of adapters and 8-bit kernels, for tests."""

import numpy as np

from azr_jax.models import adapters, sampling_params


def merge(params, trained, lora):
  """Returns a model without adapters that computes the same, float32."""
  merged = dict(params)
  for name, value in trained.items():
    if not name.endswith(adapters.SUFFIX):
      merged[name] = merge(merged[name], value, lora)
      continue
    projection = name.removesuffix(adapters.SUFFIX)
    own = merged[projection]
    kernel = np.asarray(own["kernel"], np.float32)
    changes = [
      np.tensordot(a, b, axes=1)
      for a, b in zip(
        np.asarray(value["a"]), np.asarray(value["b"]), strict=True
      )
    ]
    merged[projection] = own | {
      "kernel": kernel + lora.scale * np.stack(changes)
    }
  return merged


def dequantized(params):
  """Returns 8-bit kernels times their scales, by the formula q s."""
  layers = {**params["layers"]}
  for part, projections in sampling_params.SUMMED_AXES.items():
    if part not in layers:
      continue
    layers[part] = {**layers[part]}
    for name, axes in projections.items():
      own = {**layers[part][name]}
      scale = np.expand_dims(own.pop("scale"), axes)
      layers[part][name] = own | {"kernel": own["kernel"] * scale}
  return params | {"layers": layers}
