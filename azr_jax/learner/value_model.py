"""The critic's network: a decoder with one bias-free scalar output.

Values are aligned as in ORZ's published code: the state before an action ends
with the token before it.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from azr_jax import types
from azr_jax.learner import objective
from azr_jax.learner.settings import HEAD_INITS
from azr_jax.models import transformer
from azr_jax.types import BoxedParams, Params

# Name of the critic's parameter [D] that replaces the policy's output head.
HEAD = "value_head"


def decoder(model: transformer.Transformer) -> transformer.Transformer:
  """Returns the policy's decoder without its output head."""
  config = dataclasses.replace(
    model.config, tie_embeddings=True, logits_scale=1.0
  )
  return model.clone(config=config)


def abstract_params(model: transformer.Transformer) -> BoxedParams:
  """Returns the shapes of its trained parameters, boxed with logical axes."""
  boxed = dict(transformer.abstract_trained(decoder(model)))
  shape = jax.ShapeDtypeStruct((model.config.hidden_size,), jnp.float32)
  boxed[HEAD] = nn.LogicallyPartitioned(shape, ("embed",))
  return boxed


def init_params(
  policy_params: Params, hidden_size: int, key: Key[Array, ""], init: str
) -> Params:
  """Returns a copy of the policy whose output head is replaced by a value head.

  Args:
    policy_params: trained parameters that policy and critic start from.
    hidden_size: D.
    key: random key of the value head; consumed.
    init: `code` draws a normal with deviation 1 / (D + 1), `paper`
      draws uniformly from (-sqrt 5, sqrt 5), as in ORZ's appendix B.

  Raises:
    ValueError: `init` is neither.
  """
  shared = {name: v for name, v in policy_params.items() if name != "head"}
  params = jax.tree.map(jnp.copy, shared)
  if init == "paper":
    limit = 5.0**0.5
    head = jax.random.uniform(key, (hidden_size,), jnp.float32, -limit, limit)
  elif init == "code":
    head = jax.random.normal(key, (hidden_size,), jnp.float32) / (
      hidden_size + 1
    )
  else:
    raise ValueError(f"head_init={init!r}: expected one of {HEAD_INITS}")
  return params | {HEAD: head}


def values(
  model: transformer.Transformer, params: Params, batch: types.Batch
) -> Float[Array, "B S"]:
  """Returns V of the state before each target, float32."""
  # The sampler's experts are the policy's.
  batch = batch.replace(experts=None)
  hidden = objective.hidden_states(decoder(model), params, batch)
  return jnp.einsum("BSD,D->BS", hidden.astype(jnp.float32), params[HEAD])
