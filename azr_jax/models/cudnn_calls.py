"""cuDNN's packed causal attention as custom calls of XLA, forward and backward.

JAX has no public function for packed sequences. Before 0.12, its private
wrapper uses the query stride for keys even if their head counts differ
(jax-ml/jax pull request 39521), and it queries the compiling machine for a GPU.
The call's fields are those of XLA's `CudnnfMHABackendConfig`.
"""

import json
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from azr_jax.models.spans import Spans

# The matrix products inside, by XLA's names for them.
_FORWARD_PRODUCTS = {
  "bmm1": "BSHE,BTHE->BHST",
  "bmm2": "BHST,BTHE->BSHE",
}
_BACKWARD_PRODUCTS = {
  "bmm1_grad_gemm1": "BHST,BSHE->BTHE",
  "bmm1_grad_gemm2": "BHST,BTHE->BSHE",
  "bmm2_grad_gemm1": "BHST,BSHE->BTHE",
  "bmm2_grad_gemm2": "BSHE,BTHE->BHST",
}
_TYPES = {"bfloat16": "BF16", "float16": "F16"}
# Memory order of results [B, H, S, E]: token before head.
_BY_TOKEN = (0, 2, 1, 3)


def forward(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  spans: Spans,
) -> tuple[Float[Array, "B S H E"], Float[Array, "sequences H S"]]:
  """Attends within each sequence; does not write the outputs of padding.

  Args:
    q: queries; they are scaled by 1 / sqrt(E) here.
    spans: the sequences of all rows.

  Returns:
    The outputs, and the log-normalizer of each query's softmax, by sequence.
  """
  _, S, H, _ = q.shape
  out, sums = _call(
    "__cudnn$fmhaSoftmax",
    _FORWARD_PRODUCTS,
    results=[q],
    kept=[jax.ShapeDtypeStruct((spans.lengths.size, H, S), jnp.float32)],
    arguments=[q, k, v],
    spans=spans,
  )
  return out, sums


def backward(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  out: Float[Array, "B S H E"],
  sums: Float[Array, "sequences H S"],
  grad: Float[Array, "B S H E"],
  spans: Spans,
) -> tuple[
  Float[Array, "B S H E"], Float[Array, "B S K E"], Float[Array, "B S K E"]
]:
  """Returns the gradients of q, k and v; does not write those of padding."""
  dq, dk, dv = _call(
    "__cudnn$fmhaSoftmaxBackward",
    _BACKWARD_PRODUCTS,
    results=[q, k, v],
    kept=[],
    arguments=[q, k, v, sums, grad.astype(q.dtype), out],
    spans=spans,
  )
  return dq, dk, dv


def offsets(x: Float[Array, "B S H E"], spans: Spans) -> Int[Array, " ends"]:
  """Returns where each sequence begins in the memory of x, in elements."""
  return spans.starts * (x.shape[2] * x.shape[3])


def _call(
  target: str,
  products: dict[str, str],
  results: Sequence[Float[Array, "B S _ E"]],
  kept: Sequence[jax.ShapeDtypeStruct],
  arguments: Sequence[Float[Array, "..."]],
  spans: Spans,
) -> list[Float[Array, "..."]]:
  """Emits one cuDNN custom call and returns its outputs.

  Args:
    target: the custom call's name.
    products: its matrix products, by XLA's names.
    results: arrays shaped like the first results.
    kept: shapes of the other results.
    arguments: the input arrays, queries and keys first.
    spans: the sequences of all rows.
  """
  q, k = arguments[:2]
  shapes = [
    jax.ShapeDtypeStruct(
      (x.shape[0], x.shape[2], x.shape[1], x.shape[3]), x.dtype
    )
    for x in results
  ]
  # XLA replaces this result by the scratch memory that cuDNN requests.
  workspace = jax.ShapeDtypeStruct((0,), jnp.uint8)
  outputs = jax.ffi.ffi_call(
    target,
    (*shapes, *kept, workspace),
    output_layouts=(*[_BY_TOKEN] * len(shapes), *[None] * len(kept), None),
    custom_call_api_version=2,
    legacy_backend_config=_config(q, k, products, spans),
  )(
    *arguments,
    spans.lengths,
    spans.lengths,
    offsets(q, spans),
    offsets(k, spans),
  )
  count = len(shapes)
  by_token = [jnp.swapaxes(x, 1, 2) for x in outputs[:count]]
  return [*by_token, *outputs[count:-1]]


def _config(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  products: dict[str, str],
  spans: Spans,
) -> str:
  """Returns the fields of the custom call."""
  B, S, H, E = q.shape
  shape = {
    "element_type": _TYPES[q.dtype.name],
    "dimensions": [str(size) for size in (B, H, S, k.shape[1])],
    "layout": {"minor_to_major": ["3", "2", "1", "0"]},
    "is_dynamic_dimension": [False] * 4,
  }
  fields = {
    "algorithm": {"is_cudnn_frontend": True},
    "fmha_scale": E**-0.5,
    "intermediate_tensor_shape": shape,
    "is_flash_attention": True,
    "mask_type": "PADDING_CAUSAL",
    "max_seg_per_batch": spans.lengths.size // B,
    **{
      f"{name}_dot_dimension_numbers": _dimension_numbers(product)
      for name, product in products.items()
    },
  }
  return json.dumps({"cudnn_fmha_backend_config": fields})


def _dimension_numbers(product: str) -> dict[str, Any]:
  """Returns XLA's description of a product like "BSHE,BTHE->BHST"."""
  operands, result = product.split("->")
  left, right = operands.split(",")
  summed = [axis for axis in left if axis in right and axis not in result]
  batch = [axis for axis in left if axis in right and axis in result]
  return {
    "lhs_contracting_dimensions": [str(left.index(a)) for a in summed],
    "rhs_contracting_dimensions": [str(right.index(a)) for a in summed],
    "lhs_batch_dimensions": [str(left.index(a)) for a in batch],
    "rhs_batch_dimensions": [str(right.index(a)) for a in batch],
  }
