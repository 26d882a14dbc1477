"""Divergences in chunks equal sums over the vocabulary, by NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_updates

from azr_jax.learner import divergences
from azr_jax.parallel import mesh as mesh_lib

TEMPERATURE = 0.7
WIDTH, VOCABULARY = 8, 16


def softmax(x):
  weights = np.exp(x - x.max(-1, keepdims=True))
  return weights / weights.sum(-1, keepdims=True)


def kl(p, q):
  return np.sum(p * np.log(p / q), -1)


DEFINITIONS = {
  "reverse_kl": kl,
  "forward_kl": lambda p, q: kl(q, p),
  "jensen_shannon": lambda p, q: (
    kl(p, (p + q) / 2) / 2 + kl(q, (p + q) / 2) / 2
  ),
}


def events(p, q, k):
  """Returns the probabilities of p's k largest, then of all others."""
  order = np.argsort(-p, axis=-1)
  p, q = (np.take_along_axis(x, order, -1) for x in (p, q))
  return [
    np.concatenate([x[..., :k], x[..., k:].sum(-1, keepdims=True)], -1)
    for x in (p, q)
  ]


def divergence(kind, logits, others, k):
  p, q = (softmax(x / TEMPERATURE) for x in (logits, others))
  return DEFINITIONS[kind](*(events(p, q, k) if k else (p, q)))


def slopes(kind, logits, others, k, weights):
  """Returns the gradient of the weighted sum by logits, by differences."""
  step = 1e-5
  found = np.zeros_like(logits)
  for v in range(VOCABULARY):
    moved = step * (np.arange(VOCABULARY) == v)
    above, below = (
      divergence(kind, logits + sign * moved, others, k) for sign in (1, -1)
    )
    found[..., v] = weights * (above - below) / (2 * step)
  return found


@pytest.mark.parametrize("kind", divergences.DIVERGENCES)
@pytest.mark.parametrize(
  "sizes, chunk, k",
  [
    (None, 5, 3),
    # Each device has four ids of the vocabulary.
    *(((1, 2, 4), 5, 0), ((1, 2, 4), 1000, 6)),
  ],
)
def test_a_divergence_and_its_gradient_are_those_of_numpy(
  kind, sizes, chunk, k
):
  mesh = None
  if sizes is not None:
    axes = dict(zip(tiny_updates.AXES, sizes, strict=False))
    mesh = mesh_lib.make_mesh(axes, jax.devices()[: int(np.prod(sizes))])
  rng = np.random.default_rng(0)
  hidden = rng.normal(size=(2, 7, WIDTH))
  others = rng.normal(size=(2, 7, WIDTH + 3))  # A wider model.
  head = rng.normal(size=(WIDTH, VOCABULARY))
  other_head = rng.normal(size=(WIDTH + 3, VOCABULARY))
  mask = (rng.random((2, 7)) < 0.7).astype(np.float32)
  weights = mask * rng.normal(size=(2, 7))

  @jax.jit
  @jax.value_and_grad
  def loss(arrays):
    found = divergences.chunked_divergence(
      kind,
      *(*arrays, jnp.float32(others), jnp.float32(other_head)),
      temperature=TEMPERATURE,
      chunk_tokens=chunk,
      mesh=mesh,
      mask=jnp.asarray(mask),
      top_k=k,
    )
    return jnp.vdot(found, jnp.float32(weights))

  value, grads = loss((jnp.float32(hidden), jnp.float32(head)))
  logits = hidden @ head, others @ other_head
  wanted = np.sum(weights * divergence(kind, *logits, k))
  np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)
  slope = slopes(kind, *logits, k, weights)
  np.testing.assert_allclose(grads[0], slope @ head.T, rtol=1e-4, atol=2e-5)
  by_head = np.einsum("bsd,bsv->dv", hidden, slope)
  np.testing.assert_allclose(grads[1], by_head, rtol=1e-4, atol=5e-5)


def test_certain_distributions_have_finite_divergences():
  """Both have an id of probability 1, the same or another."""
  hidden = jnp.array([[[200.0, 0.0], [0.0, 200.0]]])
  other = jnp.array([[[200.0, 0.0], [200.0, 0.0]]])
  head = jnp.eye(2, 4)

  def loss(hidden, kind, k):
    return divergences.chunked_divergence(
      *(kind, hidden, head, other, head),
      temperature=1.0,
      chunk_tokens=2,
      top_k=k,
    )[0]

  for kind, far in (
    ("reverse_kl", 200.0),
    ("forward_kl", 200.0),
    ("jensen_shannon", np.log(2)),
  ):
    np.testing.assert_allclose(loss(hidden, kind, 0), [0, far], atol=1e-5)
    for k in (0, 1):
      grad = jax.grad(lambda h, k=k, n=kind: jnp.sum(loss(h, n, k)))(hidden)
      assert np.isfinite(grad).all()
