"""Token sampling: greedy, temperature, top-k, top-p.

Each slot has its own temperature, so one program draws both training samples
and greedy benchmark answers.

Nothing sorts the vocabulary: top-p finds its threshold by bisection, and a draw
inverts the cumulative distribution block by block.

Axis letters are as in `types.py`; B counts slots.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

# A draw first picks a block of this many tokens by their total weight.
_BLOCK_TOKENS = 128


@dataclasses.dataclass(frozen=True)
class Truncation:
  """Limits which tokens may be drawn; greedy slots ignore it.

  Attributes:
    top_k: keep only the k most likely tokens; 0 keeps all.
    top_p: keep the smallest set of most likely tokens whose probability
      reaches p; 1 keeps all. Tokens as likely as the last one are also kept.
  """

  top_k: int = 0
  top_p: float = 1.0


def processed_logits(
  logits: Float[Array, "B V"],
  temperature: Float[Array, " B"],
  truncation: Truncation,
) -> Float[Array, "B V"]:
  """Returns the logits of the sampling distribution, float32.

  Tokens that cannot be drawn get -inf. At temperature 0 the logits are left
  unchanged, so a greedy slot reports the model's own distribution.
  """
  logits = logits.astype(jnp.float32)
  is_greedy = (temperature == 0)[:, None]
  logits = logits / jnp.where(is_greedy, 1.0, temperature[:, None])
  if truncation.top_k:
    kept, _ = jax.lax.top_k(logits, truncation.top_k)
    is_kept = is_greedy | (logits >= kept[:, -1:])
    logits = jnp.where(is_kept, logits, -jnp.inf)
  if truncation.top_p < 1:
    weights = _weights(logits)
    threshold = _nucleus_threshold(weights, truncation.top_p)
    is_kept = is_greedy | (weights >= threshold[:, None])
    logits = jnp.where(is_kept, logits, -jnp.inf)
  return logits


def _weights(logits: Float[Array, "B V"]) -> Float[Array, "B V"]:
  """Returns unnormalized probabilities; the largest of each row is 1."""
  return jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))


def _nucleus_threshold(
  weights: Float[Array, "B V"], top_p: float
) -> Float[Array, " B"]:
  """Returns the largest threshold whose kept weights reach `top_p` of the sum.

  The weights at or above the threshold are kept. Non-negative floats sort like
  their bit patterns, so 31 bisections over the bit range find the threshold
  exactly.
  """
  rows = weights.shape[0]
  target = top_p * jnp.sum(weights, axis=-1)

  def halve(
    _: jax.Array, bounds: tuple[jax.Array, jax.Array]
  ) -> tuple[jax.Array, jax.Array]:
    low, high = bounds
    middle = low + (high - low) // 2
    threshold = jax.lax.bitcast_convert_type(middle, jnp.float32)[:, None]
    mass = jnp.sum(jnp.where(weights >= threshold, weights, 0.0), axis=-1)
    reached = mass >= target
    return jnp.where(reached, middle, low), jnp.where(reached, high, middle)

  largest = jax.lax.bitcast_convert_type(jnp.float32(1.0), jnp.int32)
  bounds = jnp.zeros(rows, jnp.int32), jnp.full(rows, largest + 1)
  low, _ = jax.lax.fori_loop(0, 31, halve, bounds)
  return jax.lax.bitcast_convert_type(low, jnp.float32)


@jax.named_scope("token_sampling")
def sample_tokens(
  logits: Float[Array, "B V"],
  keys: Key[Array, " B"],
  temperature: Float[Array, " B"],
  truncation: Truncation,
) -> tuple[Int[Array, " B"], Float[Array, " B"]]:
  """Draws one token per row; consumes `keys`.

  Args:
    logits: the unprocessed logits.
    keys: one random key per row.
    temperature: divisor of the logits; 0 takes the most likely token, or the
      first one on ties.
    truncation: the tokens that may be drawn.

  Returns:
    Token ids, int32, and their log-probabilities under the processed
    distribution, float32.
  """
  logits = processed_logits(logits, temperature, truncation)
  uniform = jax.vmap(lambda key: jax.random.uniform(key, (2,)))(keys)
  # With `uniform` 0 the first token of nonzero weight is drawn. In greedy slots
  # only the most likely tokens have nonzero weight.
  weights, is_greedy = _weights(logits), (temperature == 0)[:, None]
  weights = jnp.where(is_greedy & (weights < 1), 0.0, weights)
  tokens = _draw(weights, jnp.where(is_greedy, 0.0, uniform))
  chosen = jnp.take_along_axis(logits, tokens[:, None], axis=-1)[:, 0]
  return tokens, chosen - jax.nn.logsumexp(logits, axis=-1)


def _draw(
  weights: Float[Array, "B V"], uniform: Float[Array, "B 2"]
) -> Int[Array, " B"]:
  """Draws a block by its total weight, then one of its tokens by weight."""
  B, V = weights.shape
  padded = jnp.pad(weights, ((0, 0), (0, -V % _BLOCK_TOKENS)))
  blocks = padded.reshape(B, -1, _BLOCK_TOKENS)
  block = _draw_one(jnp.sum(blocks, axis=-1), uniform[:, 0])
  inside = jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
  return block * _BLOCK_TOKENS + _draw_one(inside, uniform[:, 1])


def _draw_one(
  weights: Float[Array, "B options"], uniform: Float[Array, " B"]
) -> Int[Array, " B"]:
  """Returns the first index where the running sum exceeds uniform x total."""
  running = jnp.cumsum(weights, axis=-1)
  target = uniform[:, None] * running[:, -1:]
  # Entries of weight 0 are excluded: through rounding the running sum might
  # pass the target at one of them, or never.
  possible = weights > 0
  passed = jnp.argmax(possible & (running > target), axis=-1)
  last = weights.shape[-1] - 1 - jnp.argmax(possible[:, ::-1], axis=-1)
  any_passed = jnp.any(possible & (running > target), axis=-1)
  return jnp.where(any_passed, passed, last).astype(jnp.int32)
