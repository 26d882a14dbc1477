"""cuDNN's packed attention, with a stand-in for its two kernels.

The stand-in is NumPy code that reads flat memory at the offsets that cuDNN
would get, and leaves NaN where cuDNN would not write.
"""

import json
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax._src.cudnn import fused_attention_stablehlo as fused
from jax._src.interpreters import mlir

from azr_jax.models import attention, cudnn, cudnn_calls
from azr_jax.models.spans import has_spans, sequence_spans
from azr_jax.parallel import mesh as mesh_lib

ONE_DEVICE = {"data": 1, "fsdp": 1, "tensor": 1}


def mesh_of(**sizes):
  sizes = ONE_DEVICE | sizes
  return mesh_lib.make_mesh(
    sizes, jax.devices()[: int(np.prod(list(sizes.values())))]
  )


def rows_of(lengths, row_length):
  """Returns segment ids of rows that pack sequences of these lengths."""
  rows = np.zeros((len(lengths), row_length), np.int32)
  for row, row_lengths in zip(rows, lengths, strict=True):
    ids = np.repeat(np.arange(1, len(row_lengths) + 1), row_lengths)
    row[: len(ids)] = ids
  return rows


def token_rows(memory, first, length, shape):
  """Returns the sequence [length, heads, size] that starts at an element."""
  _, _, heads, size = shape
  stop = first + length * heads * size
  return memory.reshape(-1)[first:stop].reshape(length, heads, size)


def scores_of(q, k, group):
  """Returns a sequence's scaled causal scores [H, S, T]."""
  k = np.repeat(k, group, axis=1)
  scores = np.einsum("she,the->hst", q, k) * q.shape[2] ** -0.5
  return np.where(np.tri(len(q), dtype=bool), scores, -np.inf)


def forward_on_host(q, k, v, lengths, q_offsets, kv_offsets):
  q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
  group = q.shape[2] // k.shape[2]
  out = np.full(q.shape, np.nan)
  sums = np.full((len(lengths), q.shape[2], q.shape[1]), np.nan)
  for i, length in enumerate(np.asarray(lengths)):
    own_q = token_rows(q, q_offsets[i], length, q.shape)
    own_k, own_v = (
      token_rows(x, kv_offsets[i], length, x.shape) for x in (k, v)
    )
    scores = scores_of(own_q, own_k, group)
    weights = np.exp(scores)
    own_sums = weights.sum(2)
    sums[i, :, :length] = np.log(own_sums)
    token_rows(out, q_offsets[i], length, q.shape)[:] = np.einsum(
      "hst,the->she", weights / own_sums[..., None], np.repeat(own_v, group, 1)
    )
  return out.astype(np.float32), sums.astype(np.float32)


def backward_on_host(q, k, v, out, sums, grad, lengths, q_offsets, kv_offsets):
  q, k, v, out, sums, grad = (
    np.asarray(x, np.float64) for x in (q, k, v, out, sums, grad)
  )
  heads, kv_heads, size = q.shape[2], k.shape[2], q.shape[3]
  group = heads // kv_heads
  grads = [np.full(x.shape, np.nan) for x in (q, k, v)]
  for i, length in enumerate(np.asarray(lengths)):
    own_q, own_out, own_grad = (
      token_rows(x, q_offsets[i], length, q.shape) for x in (q, out, grad)
    )
    own_k, own_v = (
      token_rows(x, kv_offsets[i], length, x.shape) for x in (k, v)
    )
    weights = np.exp(scores_of(own_q, own_k, group) - sums[i, :, :length, None])
    by_value = np.einsum("she,the->hst", own_grad, np.repeat(own_v, group, 1))
    mean = np.einsum("she,she->hs", own_grad, own_out)
    of_scores = weights * (by_value - mean[..., None]) * size**-0.5
    dq, dk, dv = (
      token_rows(x, offsets[i], length, x.shape)
      for x, offsets in zip(
        grads, (q_offsets, kv_offsets, kv_offsets), strict=True
      )
    )
    dq[:] = np.einsum("hst,the->she", of_scores, np.repeat(own_k, group, 1))
    for into, factor, of in ((dk, of_scores, own_q), (dv, weights, own_grad)):
      by_head = np.einsum("hst,she->the", factor, of)
      into[:] = by_head.reshape(length, kv_heads, group, size).sum(2)
  return tuple(x.astype(np.float32) for x in grads)


def offsets(q, k, spans):
  return [cudnn_calls.offsets(x, spans) for x in (q, k)]


def like(*arrays):
  return tuple(jax.ShapeDtypeStruct(x.shape, jnp.float32) for x in arrays)


def forward(q, k, v, spans):
  B, S, H, _ = q.shape
  sums = jax.ShapeDtypeStruct((len(spans.lengths), H, S), jnp.float32)
  return jax.pure_callback(
    forward_on_host,
    (*like(q), sums),
    q,
    k,
    v,
    spans.lengths,
    *offsets(q, k, spans),
  )


def backward(q, k, v, out, sums, grad, spans):
  return jax.pure_callback(
    backward_on_host,
    like(q, k, v),
    q,
    k,
    v,
    out,
    sums,
    grad,
    spans.lengths,
    *offsets(q, k, spans),
  )


STAND_IN = cudnn.Kernels(forward, backward)


def drawn(B, S, H, K, E):
  rng = np.random.default_rng(0)
  return [
    jnp.asarray(rng.normal(size=(B, S, heads, E)), jnp.float32)
    for heads in (H, K, K)
  ]


MAX_SEQUENCES_PER_ROW = 5
spans_of = jax.jit(lambda x: sequence_spans(x, MAX_SEQUENCES_PER_ROW))
told_of = jax.jit(lambda x: has_spans(x, MAX_SEQUENCES_PER_ROW))


@given(
  st.lists(
    st.lists(st.integers(1, 12), max_size=MAX_SEQUENCES_PER_ROW).filter(
      lambda lengths: sum(lengths) <= 40
    ),
    min_size=3,
    max_size=3,
  )
)
def test_spans_are_the_sequences_of_all_rows(lengths):
  segments = jnp.asarray(rows_of(lengths, 40))
  spans = spans_of(segments)
  wanted = [
    (row * 40 + sum(row_lengths[:index]), length)
    for row, row_lengths in enumerate(lengths)
    for index, length in enumerate(row_lengths)
  ]
  empty = 3 * MAX_SEQUENCES_PER_ROW - len(wanted)
  assert spans.lengths.tolist() == [x for _, x in wanted] + [0] * empty
  assert spans.starts.tolist() == [x for x, _ in wanted] + [120] * (empty + 1)
  assert told_of(segments).all()


@pytest.mark.parametrize(
  ("sizes", "heads"),
  [({}, (4, 2)), ({"data": 2, "tensor": 2}, (4, 2)), ({"fsdp": 2}, (3, 1))],
)
def test_packed_equals_xla_forward_and_backward(sizes, heads):
  """Pads rows of 45 tokens to 48; one row is full and one is empty."""
  lengths = [[3, 17, 25], [9, 1, 30], [], [45]]
  segments = jnp.asarray(rows_of(lengths, 45))
  q, k, v = drawn(4, 45, heads[0], heads[1], 8)
  live = (segments > 0)[..., None, None]
  packed = cudnn.make_attention(mesh_of(**sizes), 4, STAND_IN)

  def loss(attend, q, k, v):
    out = attend(q, k, v, segments)
    return jnp.sum(jnp.where(live, jnp.sin(out), 0.0)), out

  found, wanted = (
    jax.jit(
      jax.value_and_grad(
        lambda *x, f=f: loss(f, *x), argnums=(0, 1, 2), has_aux=True
      )
    )(q, k, v)
    for f in (packed, attention.xla_attention)
  )
  np.testing.assert_allclose(
    found[0][1], jnp.where(live, wanted[0][1], 0.0), atol=1e-5
  )
  for one, other in zip(found[1], wanted[1], strict=True):
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_row_that_is_not_packed_as_told_gives_nan():
  """Covers too many sequences (four of three), wrong order, leading padding."""
  rows = jnp.asarray(
    [
      [1, 2, 3, 4, 0, 0],
      [2, 2, 1, 1, 0, 0],
      [0, 1, 1, 2, 2, 2],
      [1, 2, 2, 3, 0, 0],
    ]
  )
  attend = jax.jit(cudnn.make_attention(mesh_of(), 3, STAND_IN))
  out = attend(*drawn(4, 6, 2, 1, 8), rows)
  assert jnp.isnan(out[:3]).all()
  assert jnp.isfinite(out[3]).all()


def cuda_calls(attend, B, S, H, K, E):
  """Returns (target, fields, operand types) of all custom calls."""

  def loss(q, k, v, segments):
    return jnp.sum(attend(q, k, v, segments).astype(jnp.float32))

  q, kv = (
    jax.ShapeDtypeStruct((B, S, heads, E), jnp.bfloat16) for heads in (H, K)
  )
  segments = jax.ShapeDtypeStruct((B, S), jnp.int32)
  traced = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).trace(q, kv, kv, segments)
  text = traced.lower(lowering_platforms=("cuda",)).as_text()
  call = (
    r"@__cudnn\$(\w+)\(.*"
    r'backend_config = "(.*?)"[,}].*: \((.*?)\) -> '
  )
  return [
    (target, json.loads(fields.replace("\\22", '"')), types.split(", "))
    for target, fields, types in re.findall(call, text)
  ]


def agrees(found, reference):
  """Returns whether all fields equal the reference's."""
  if not isinstance(found, dict):
    return found == reference
  return all(agrees(found[name], reference.get(name)) for name in found)


def test_cudnn_gets_the_fields_of_jax_and_offsets_instead_of_a_bias():
  """Uses JAX's private wrapper as the reference of the protocol."""
  attend = cudnn.make_attention(mesh_of(), 4, cudnn.Kernels())
  calls = cuda_calls(attend, 2, 45, 4, 2, 16)
  assert len(calls) == 2
  with mlir.make_ir_context():
    for is_backward, (target, fields, types) in enumerate(calls):
      name = fused.get_custom_call_name(False, False, bool(is_backward))
      assert name == f"__cudnn${target}"
      reference = json.loads(
        fused.create_dot_product_attention_backend_config(
          2,
          4,
          48,
          48,
          mlir.ir.BF16Type.get(),
          0.25,
          42,
          0.0,
          fused.MaskType.PADDING_CAUSAL,
          fused.AttentionLayout.BTNH.value,
          None,
          4,
          False,
          bool(is_backward),
        )
      )["cudnn_fmha_backend_config"]
      found = fields["cudnn_fmha_backend_config"]
      assert found.keys() >= {x for x in reference if "dimension" in x}
      assert agrees(found, reference)
      assert types[:2] == ["tensor<2x48x4x16xbf16>", "tensor<2x48x2x16xbf16>"]
      assert types[-4:] == ["tensor<8xi32>"] * 2 + ["tensor<9xi32>"] * 2
      assert len(types) == (10 if is_backward else 7)


def test_offsets_count_the_heads_of_their_own_array(monkeypatch):
  """Uses rows of 8 tokens, 4 query heads and 2 key heads, each of size 16."""
  given_arguments = []

  def call(target, shapes, **_):
    def run(*arguments):
      given_arguments.extend(arguments[-4:])
      return [jnp.zeros(x.shape, x.dtype) for x in shapes]

    return run

  monkeypatch.setattr(jax.ffi, "ffi_call", call)
  q, k, v = (x.astype(jnp.bfloat16) for x in drawn(2, 8, 4, 2, 16))
  segments = jnp.asarray(rows_of([[3, 2], [7]], 8))
  cudnn_calls.forward(q, k, v, sequence_spans(segments, 2))
  lengths, kv_lengths, of_queries, of_keys = (
    x.tolist() for x in given_arguments
  )
  assert lengths == kv_lengths == [3, 2, 7, 0]
  starts = np.array([0, 3, 8, 16, 16])
  assert of_queries == (starts * 64).tolist()
  assert of_keys == (starts * 32).tolist()


@pytest.mark.parametrize(
  ("capability", "packs"), [("8.0", False), ("9.0", True), ("10.0", True)]
)
def test_the_device_decides_the_form(capability, packs):
  assert cudnn._packs(SimpleNamespace(compute_capability=capability)) == packs
  assert not cudnn._packs(jax.devices()[0])


def test_a_type_that_cudnn_lacks_is_refused():
  with pytest.raises(ValueError, match="expected 'bfloat16'"):
    attention.make("cudnn", mesh_of(), "float32", 4)


def test_too_many_elements_for_offsets_are_refused():
  rows = jax.ShapeDtypeStruct((64, 16384), jnp.int32)
  heads = jax.ShapeDtypeStruct((64, 16384, 16, 128), jnp.bfloat16)
  attend = cudnn.make_attention(mesh_of(), 4, STAND_IN)
  with pytest.raises(ValueError, match="lower learner.micro_rows"):
    jax.eval_shape(attend, heads, heads, heads, rows)
