"""Distillation on the model's own samples (SDPO, arXiv 2601.20802).

A teacher reads the same response behind another prompt, or with other weights.
At each token t of the response, with p the policy's distribution and q the
teacher's:

  a divergence: loss = sum over t of w_t [c_t L_t(b A_t) + a D_t(p, q)];
  the policy gradient: loss = sum over t of w_t c_t L_t(b A_t + a G_t), with
    G_t = log q(t) - log p(t), without gradient.

  * a, b: `distill.weight` and `distill.policy_weight`.
  * w_t, c_t, L_t: as in `objective.make_policy_loss`.
  * A_t: the estimator's advantage.
  * D_t: from `divergences.py`; 0, like G_t, where no teacher reads t.

On samples of the policy, the gradient of KL(p, q) is the expectation of the
policy gradient's. The teacher gets no gradient.

The embeddings of two models may be padded to different sizes. Divergences
compare the ids that both have, and both distributions are normalized over them.
"""

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from azr_jax import types
from azr_jax.config.settings import Settings, setting
from azr_jax.learner import divergences, masked, objective
from azr_jax.learner import logprobs as logprobs_lib
from azr_jax.learner.objective import Distilled, Fixed
from azr_jax.models import transformer
from azr_jax.types import Metrics, Params

POLICY_GRADIENT = "policy_gradient"
LOSSES = (*divergences.DIVERGENCES, POLICY_GRADIENT)
# Whose weights the teacher has, unless it is another model.
POLICY, AVERAGE, INITIAL = TEACHERS = "policy", "average", "initial"
# What a teacher's prompt adds to the policy's.
FEEDBACK, REFERENCE, SUCCESS = CONTEXTS = "feedback", "reference", "success"
# The place of the added text in a template.
TEXT = "{text}"
# Metric names.
_FRACTION, _LOSS, _GAIN = (
  f"distill/{name}" for name in ("fraction", "loss", "gain")
)

# (parameters, micro-batch, `Fixed`, hidden states, head, log-probabilities of
# the targets) -> distilled.
Distill: TypeAlias = Callable[..., Distilled]


def _template(default: str, doc: str) -> str:
  return setting(
    default,
    doc,
    accepts=(lambda v: v.count(TEXT) == 1, f"a text with {TEXT} in it once"),
    expert=True,
  )


@dataclasses.dataclass(frozen=True)
class DistillSettings(Settings):
  """A teacher that knows more than the policy and scores its responses."""

  weight: float = setting(
    0.0,
    "weight of distillation on the model's own samples; 0: none",
    minimum=0,
  )
  policy_weight: float = setting(
    1.0,
    "weight of the estimator's advantages beside distillation; 0: none",
    minimum=0,
  )
  loss: str = setting(
    divergences.REVERSE_KL,
    "what pulls the policy to the teacher: a divergence of their "
    "distributions, or advantages of the sampled tokens",
    choices=LOSSES,
  )
  top_k: int = setting(
    0,
    "ids of a divergence that count apart from the rest, those most likely "
    "under the policy; 0: the whole vocabulary",
    minimum=0,
    expert=True,
  )
  teacher: str = setting(
    POLICY,
    "weights of the teacher: 'policy' has the policy's own, 'average' their "
    "moving average, 'initial' those that training started from, and anything "
    "else names another model with the same tokenizer, as model.source does",
    required=True,
  )
  average_rate: float = setting(
    0.05,
    "fraction of its distance to the policy's weights by which each update "
    "moves the average",
    above=0,
    maximum=1,
    expert=True,
  )
  context: tuple[str, ...] = setting(
    (FEEDBACK,),
    "what the teacher's prompt adds: the grader's feedback, the reference "
    "answer, or a successful response of the group; of several, the first "
    "that a response has; (): nothing, for a teacher that is another model",
    subset_of=CONTEXTS,
  )
  success_reward: float = setting(
    1.0, "reward from which on a response is successful", expert=True
  )
  text_tokens: int = setting(
    256,
    "maximum tokens that a teacher's prompt adds; longer texts lose their "
    "middle",
    minimum=1,
  )
  row_length: int = setting(
    0,
    "tokens per packed row of the teacher; 0: learner.row_length, plus "
    "text_tokens if it reads a context, rounded up to a multiple of 8",
    minimum=0,
    expert=True,
  )
  feedback_text: str = _template(
    "\n\nAn earlier answer was wrong. Feedback on it:\n{text}\n\nAnswer the "
    "question correctly.",
    "what a teacher's prompt adds for feedback, with {text} in its place",
  )
  reference_text: str = _template(
    "\n\nThe right answer is:\n{text}\n\nSolve the question so that you arrive "
    "at it.",
    "the same for the reference answer",
  )
  success_text: str = _template(
    "\n\nA correct solution:\n{text}\n\nAnswer the question correctly.",
    "the same for a successful response",
  )

  def check(self) -> None:
    """Rejects settings without effect, or with which nothing is learned."""
    if not self.weight and not self.policy_weight:
      raise self.invalid("policy_weight", "above 0 with distill.weight=0")
    if self.top_k and self.loss == POLICY_GRADIENT:
      raise self.invalid("top_k", f"0 with distill.loss={self.loss!r}")
    if not self.context and self.teacher in TEACHERS:
      raise self.invalid(
        "context",
        f"some of {CONTEXTS} with distill.teacher={self.teacher!r}, which "
        "must read more than the policy",
      )

  @property
  def other_model(self) -> str:
    """The model that is the teacher; "" if it has weights of the policy."""
    is_used = self.weight > 0 and self.teacher not in TEACHERS
    return self.teacher if is_used else ""

  @property
  def keeps_average(self) -> bool:
    """Whether the learner keeps a moving average of the policy's weights."""
    return self.weight > 0 and self.teacher == AVERAGE

  @property
  def added_tokens(self) -> int:
    """Maximum tokens by which a teacher's prompt exceeds the policy's."""
    return self.text_tokens if self.context else 0

  def longest_row(self, row_length: int) -> int:
    """Returns the tokens of a teacher's row.

    Args:
      row_length: tokens of the policy's row.
    """
    if self.row_length:
      return self.row_length
    return -(-(row_length + self.added_tokens) // 8) * 8


def make(
  model: transformer.Transformer,
  *,
  loss: str,
  weight: float,
  policy_weight: float,
  teacher: str,
  top_k: int,
  temperature: float,
  chunk_tokens: int,
  mesh: Mesh | None,
) -> Distill | None:
  """Returns what distillation adds to a policy loss; None without a weight.

  Args:
    model: the teacher's decoder: the policy's, or that of another model.
    loss: one of `LOSSES`.
    weight: the weight of distillation.
    policy_weight: the weight of the estimator's advantages.
    teacher: `POLICY`, `INITIAL`, or anything else for `Fixed.teacher`.
    top_k: as in `divergences.chunked_divergence`.
    temperature: the sampling temperature; divides the logits of both.
    chunk_tokens: number of tokens whose logits exist at the same time.
    mesh: the device mesh of the batch, as in `logprobs.chunked_logprobs`.
  """
  if not weight:
    return None

  def distill(
    params: Params,
    batch: types.Batch,
    fixed: Fixed,
    hidden: Float[Array, "B S D"],
    head: Float[Array, "D V"],
    logprobs: Float[Array, "B S"],
  ) -> Distilled:
    assert batch.advantages is not None and batch.teacher is not None
    if teacher == INITIAL:
      assert fixed.reference is not None
      params = fixed.whole(fixed.reference)
    elif teacher != POLICY:
      assert fixed.teacher is not None
      params = fixed.teacher
    params = jax.lax.stop_gradient(params)
    mask = batch.teacher.mask
    read = objective.hidden_states(model, params, batch.teacher)
    theirs = _at(read, batch.teacher.places)
    their_head = transformer.unembedding(params, model.config)
    vocab_size = min(head.shape[1], their_head.shape[1])
    their_head = _cut(their_head, vocab_size)
    sums = {_FRACTION: jnp.sum(mask)}
    advantages = policy_weight * batch.advantages
    scoring = dict(
      temperature=temperature, chunk_tokens=chunk_tokens, mesh=mesh, mask=mask
    )
    if loss == POLICY_GRADIENT:
      found, _ = logprobs_lib.chunked_logprobs(
        theirs, their_head, batch.targets, **scoring
      )
      gain = jax.lax.stop_gradient(found - logprobs)
      gain = jnp.where(mask > 0, gain, 0.0)
      sums[_GAIN] = jnp.sum(gain)
      return Distilled(advantages + weight * gain, jnp.zeros(()), sums)
    divergence = divergences.chunked_divergence(
      *(loss, hidden, _cut(head, vocab_size), theirs, their_head),
      top_k=top_k,
      **scoring,
    )
    sums[_LOSS] = masked.masked_sum(divergence, mask)
    weighted = jnp.sum(batch.loss_weights * mask * divergence)
    return Distilled(advantages, weight * weighted, sums)

  return distill


def _at(
  hidden: Float[Array, "B T D"], places: Int[Array, "B S"]
) -> Float[Array, "B S D"]:
  """Returns the hidden states at some positions of each row."""
  return jnp.take_along_axis(hidden, places[:, :, None], axis=1)


def _cut(head: Float[Array, "D V"], vocab_size: int) -> Float[Array, "D _V"]:
  """Returns an output head of the first ids."""
  return head if head.shape[1] == vocab_size else head[:, :vocab_size]


def per_teacher(metrics: Metrics) -> Metrics:
  """Turns means over trained targets into means over those with a teacher.

  Without distillation, the metrics are returned unchanged.
  """
  if _FRACTION not in metrics:
    return metrics
  fraction = jnp.maximum(metrics[_FRACTION], 1e-30)
  return metrics | {
    name: metrics[name] / fraction for name in (_LOSS, _GAIN) if name in metrics
  }
