"""Shapes in signatures are checked while tests run."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import shape_checks

from azr_jax import types
from azr_jax.learner import gae
from azr_jax.models import layers, spans
from azr_jax.rollout import drafts
from azr_jax.serving import scoring


def test_every_module_with_shapes_is_checked():
  assert len(shape_checks.modules()) > 30
  for module in (gae, layers, drafts, scoring, types):
    assert module.__name__ in shape_checks.modules()


def test_axes_of_one_letter_must_agree():
  rows, longer = jnp.zeros((2, 4)), jnp.zeros((2, 5))
  with pytest.raises(jaxtyping.TypeCheckError, match="'rewards'"):
    gae.estimate(rows, longer, rows, rows.astype(int), gamma=1, gae_lambda=1)


def test_the_number_of_axes_is_checked():
  propose = jax.jit(drafts.propose, static_argnums=(2, 3))
  drafted = propose(jnp.zeros((2, 9), int), jnp.int32(3), 1, 1)
  assert drafted.shape == (2, 1)
  with pytest.raises(jaxtyping.TypeCheckError, match="'context'"):
    drafts.propose(jnp.zeros(4, int), jnp.int32(3), 1, 1)


def test_fields_of_one_letter_must_agree():
  ids, logprobs = np.arange(3, dtype=np.int32), np.zeros(3, np.float32)
  types.Completion(ids, logprobs, ids > 0, "stop", "abc")
  for longer in (np.zeros(4, bool), np.zeros(3, int)):
    with pytest.raises(jaxtyping.TypeCheckError, match="'loss_mask'"):
      types.Completion(ids, logprobs, longer, "stop", "abc")


def test_fields_of_pytrees_are_checked_where_all_are_arrays():
  lengths, starts = jnp.zeros(2, jnp.int32), jnp.zeros(3, jnp.int32)
  made = spans.Spans(lengths, starts)
  with pytest.raises(jaxtyping.TypeCheckError, match="'starts'"):
    made.replace(starts=lengths)
  with pytest.raises(jaxtyping.TypeCheckError, match="'lengths'"):
    spans.Spans(lengths * 1.0, starts)
  ranks = jax.tree.map(lambda x: x.ndim, made)
  assert [ranks.lengths, ranks.starts] == [1, 1]
