"""Attention backends agree with each other and with NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import paged_rows
import pytest

from azr_jax.models import attention, cached_attention, pages, splash
from azr_jax.parallel import mesh as mesh_lib


def drawn(rows, length, heads, kv_heads, size, seed=0):
  rng = np.random.default_rng(seed)

  def normal(count):
    values = rng.normal(size=(rows, length, count, size))
    return jnp.asarray(values, jnp.float32)

  return normal(heads), normal(kv_heads), normal(kv_heads)


def reference(q, k, v, segments):
  """Returns attention by loops over queries and heads, in float64."""
  q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
  rows, length, heads, size = q.shape
  group = heads // k.shape[2]
  out = np.zeros_like(q)
  for b, s, h in np.ndindex(rows, length, heads):
    seen = [t for t in range(s + 1) if segments[b, t] == segments[b, s]]
    scores = k[b, seen, h // group] @ q[b, s, h] / np.sqrt(size)
    weights = np.exp(scores - scores.max())
    out[b, s, h] = weights @ v[b, seen, h // group] / weights.sum()
  return out


SEGMENTS = np.array([[1] * 5 + [2] * 6 + [0] * 2, [1] * 13])


def test_xla_equals_loops():
  q, k, v = drawn(2, 13, 4, 2, 8)
  got = attention.xla_attention(q, k, v, jnp.asarray(SEGMENTS))
  np.testing.assert_allclose(got, reference(q, k, v, SEGMENTS), atol=1e-5)


@pytest.mark.parametrize(
  "tensor, context",
  [
    (1, 4),
    *(
      pytest.param(*sizes, marks=pytest.mark.slow)
      for sizes in ((2, 1), (1, 1), (1, 2))
    ),
  ],
)
def test_splash_equals_xla_forward_and_backward(tensor, context):
  """Uses packed rows of 600 tokens: two blocks, the second padded."""
  mesh = mesh_lib.make_mesh(
    {"data": 2, "fsdp": 1, "tensor": tensor, "context": context},
    jax.devices()[: 2 * tensor * context],
  )
  q, k, v = drawn(2, 600, 4, 2, 64)
  segments = jnp.asarray(np.repeat([[1, 2, 0], [1, 1, 2]], 200, axis=1))
  kernel = splash.make_attention(mesh, interpret=True)
  live = (segments > 0)[..., None, None]

  @functools.partial(jax.jit, static_argnums=0)
  def value_and_grads(attend, q, k, v):
    def loss(*x):
      values = attend(*x, segments) * live
      return jnp.sum(jnp.sin(values)), values

    return jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(q, k, v)

  (grads, got), (wanted, want) = (
    value_and_grads(f, q, k, v) for f in (kernel, attention.xla_attention)
  )
  np.testing.assert_allclose(got, want, atol=1e-5)
  for one, other in zip(grads, wanted, strict=True):
    np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("block", [1, 2, 5])
def test_live_blocks_hold_every_key_that_a_query_sees(block):
  rng = np.random.default_rng(block)
  for _ in range(20):
    lengths = rng.integers(1, 9, 4)
    row = np.repeat([1, 2, 3, 0], lengths)
    row = np.pad(row, (0, 40 - len(row)))  # One shape is compiled once.
    sees = np.tril(row[:, None] == row[None, :])
    blocks = len(row) // block
    by_block = sees.reshape(blocks, block, blocks, block).any((1, 3))
    row = jnp.asarray(row)
    found = np.asarray(splash.live_blocks(row, row, 0, block))
    # The second half of the queries, as on the second of two devices.
    later = splash.live_blocks(row[block:], row, block, block)
    np.testing.assert_array_equal(later, found[1:])
    assert (found >= by_block).all()
    # With one token per block, the test is exact.
    assert block > 1 or (found == by_block).all()


@pytest.mark.slow
def test_splash_reads_no_block_of_another_sequence():
  """Fills keys and values of other sequences' blocks with NaN."""
  mesh = mesh_lib.make_mesh(
    {"data": 1, "fsdp": 1, "tensor": 1}, jax.devices()[:1]
  )
  q, k, v = drawn(1, 4 * 512, 2, 1, 32)
  segments = jnp.asarray(np.repeat([[1, 2, 2, 0]], 512, axis=1))
  kernel = splash.make_attention(mesh, interpret=True)
  for segment in (1, 2):
    own = (segments == segment)[..., None, None]

    def loss(attend, q, k, v, own=own):
      return jnp.sum(jnp.where(own, jnp.sin(attend(q, k, v, segments)), 0.0))

    others = [jnp.where(own, x, jnp.nan) for x in (k, v)]
    got = jax.jit(jax.grad(lambda *x: loss(kernel, *x), argnums=(0, 1, 2)))
    want = jax.grad(
      lambda *x: loss(attention.xla_attention, *x), argnums=(0, 1, 2)
    )(q, k, v)
    for one, other in zip(got(q, *others), want, strict=True):
      np.testing.assert_allclose(
        jnp.where(own, one, 0), jnp.where(own, other, 0), atol=1e-4
      )


def by_head(k, v):
  """Returns keys and values with the head axis before the token axis."""
  return np.swapaxes(k, 1, 2), np.swapaxes(v, 1, 2)


@pytest.mark.parametrize(
  "chunk, rows_count", [(1, 3), (4, 3), (7, 3), (64, 3), (4, 32)]
)
@pytest.mark.parametrize("recent", [0, 3])
def test_cached_attention_equals_xla(chunk, recent, rows_count):
  """Attends from one query per row to 0 to 12 cached and some recent tokens.

  With 32 rows, rows are read in blocks of similar length.
  """
  B = rows_count
  q, k, v = (np.asarray(x) for x in drawn(B, 20, 4, 2, 8))
  cached = np.array([0, 5, 12, *np.random.default_rng(0).integers(0, 13, B)])[
    :B
  ]
  L, layer = 2, jnp.int32(1)
  store = paged_rows.empty_cache((L, B, 2, 16, 8), chunk)
  k_all, v_all = (jnp.asarray([0 * x, x])[..., :16, :] for x in by_head(k, v))
  store = paged_rows.write_rows(store, k_all, v_all, np.zeros(B))
  store = paged_rows.with_length(store, cached)
  segments = jnp.ones((B, 20), jnp.int32)
  want = jax.jit(attention.xla_attention)(q, k, v, segments)

  def rows(x, first, count):
    x = np.asarray(x)
    return jnp.asarray(
      [x[b, first[b] : first[b] + count] for b in range(len(first))]
    )

  kept = None
  if recent:
    new_k, new_v = by_head(
      rows(k, cached, recent + 2), rows(v, cached, recent + 2)
    )
    # NaN in the other layers, which must not be read.
    of_layers = [np.full_like(new_k, np.nan)] * 3
    of_k, of_v = list(of_layers), list(of_layers)
    of_k[layer], of_v[layer] = new_k, new_v
    entries = pages.Entries(jnp.asarray(of_k), jnp.asarray(of_v))
    kept = pages.RecentKV(entries, jnp.int32(recent))
  now = cached + recent
  got = jax.jit(cached_attention.cached_attention)(
    rows(q, now, 1),
    pages.Entries(*by_head(rows(k, now, 1), rows(v, now, 1))),
    store,
    kept,
    layer,
  )
  np.testing.assert_allclose(got, rows(want, now, 1), atol=1e-5)


def test_auto_goes_by_platform_and_type():
  assert attention.backend_for("cpu", "bfloat16") == "xla"
  assert attention.backend_for("tpu", "float32") == "splash"
  assert attention.backend_for("gpu", "bfloat16") == "cudnn"
  assert attention.backend_for("gpu", "float32") == "xla"
