"""Merges adapters by the formula W + s A B, for tests."""

import numpy as np

from azr_jax.models import adapters


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
