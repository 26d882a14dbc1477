"""Choosing the next token: greedy, temperature, top-k, top-p."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key


@dataclasses.dataclass(frozen=True)
class TokenChoice:
  """How a token is drawn.

  Attributes:
    temperature: logits are divided by it; 0 takes the most likely token.
    top_k: keep only the k most likely tokens; 0 keeps all.
    top_p: keep the smallest set of most likely tokens whose probability
      reaches p; 1 keeps all.
  """

  temperature: float = 1.0
  top_k: int = 0
  top_p: float = 1.0


def processed_logprobs(
  logits: Float[Array, "B V"], choice: TokenChoice
) -> Float[Array, "B V"]:
  """Log-probabilities of the distribution that is sampled from, float32.

  Greedy choice reports the unprocessed model distribution.
  """
  logits = logits.astype(jnp.float32)
  if choice.temperature > 0:
    logits = logits / choice.temperature
  logprobs = jax.nn.log_softmax(logits, axis=-1)
  if choice.temperature == 0:
    return logprobs
  if choice.top_k:
    kept, _ = jax.lax.top_k(logprobs, choice.top_k)
    logprobs = jnp.where(logprobs < kept[:, -1:], -jnp.inf, logprobs)
    logprobs = jax.nn.log_softmax(logprobs, axis=-1)
  if choice.top_p < 1:
    ordered = jnp.sort(logprobs, axis=-1, descending=True)
    before = jnp.cumsum(jnp.exp(ordered), axis=-1) - jnp.exp(ordered)
    threshold = jnp.min(
      jnp.where(before < choice.top_p, ordered, jnp.inf),
      axis=-1,
      keepdims=True,
    )
    logprobs = jnp.where(logprobs < threshold, -jnp.inf, logprobs)
    logprobs = jax.nn.log_softmax(logprobs, axis=-1)
  return logprobs


def choose(
  logits: Float[Array, "B V"], keys: Key[Array, " B"], choice: TokenChoice
) -> tuple[Int[Array, " B"], Float[Array, " B"]]:
  """Draws one token a row; uses up `keys`.

  Returns:
    Token ids and their log-probabilities under the processed distribution.
  """
  logprobs = processed_logprobs(logits, choice)
  if choice.temperature == 0:
    tokens = jnp.argmax(logprobs, axis=-1)
  else:
    tokens = jax.vmap(jax.random.categorical)(keys, logprobs)
  chosen = jnp.take_along_axis(logprobs, tokens[:, None], axis=-1)
  return tokens, chosen[:, 0]
