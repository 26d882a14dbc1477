"""Distillation: losses by definition, packed rows, settings."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_updates
from tiny_updates import CONFIG, MODEL, close, init

from azr_jax.config.settings import Invalid
from azr_jax.learner import distillation, objective, packing, policy_losses
from azr_jax.learner.distillation import DistillSettings
from azr_jax.learner.objective import Fixed
from azr_jax.learner.settings import LearnerSettings
from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib

# Weights of distillation and of the estimator's advantages.
WEIGHT, POLICY_WEIGHT = 0.5, 0.25
# Teachers of another shape, with embeddings padded to more or fewer rows.
WIDER, SMALLER = (
  transformer.Transformer(
    dataclasses.replace(
      CONFIG,
      vocab_size=vocab_size,
      hidden_size=48,
      num_layers=1,
      num_heads=6,
      num_kv_heads=3,
      mlp_size=40,
      tie_embeddings=False,
    )
  )
  for vocab_size in (72, 56)
)
# All batches have the same shape, so that each loss is compiled once.
ROWS, ROW, TEACHER_ROW = 6, 28, 48


def examples():
  """Returns sequences of which all but the second have a teacher.

  The teacher's prompt is longer, and the completions have tool output.
  """
  rng = np.random.default_rng(1)
  found = []
  for number, item in enumerate(tiny_updates.sequences()):
    mask = item.loss_mask.copy()
    mask[-3] = False
    told = rng.integers(1, CONFIG.vocab_size, 2 + number).astype(np.int32)
    ids = np.concatenate([told, item.token_ids[1:]])
    found.append(
      dataclasses.replace(
        item, loss_mask=mask, teacher_ids=None if number == 1 else ids
      )
    )
  return found


def batch_of(items, max_sequences_per_row=32):
  return packing.pack(
    items,
    row_length=ROW,
    rows_multiple=ROWS,
    aggregation="sequence_mean",
    max_sequences_per_row=max_sequences_per_row,
    teacher_row_length=TEACHER_ROW,
  )


def loss_of(
  loss, mesh=None, model=MODEL, teacher="policy", top_k=0, read_by=None
):
  settings = LearnerSettings()
  return objective.make_policy_loss(
    model,
    policy_losses.make("clipped", settings),
    temperature=1.0,
    chunk_tokens=16,
    mesh=mesh,
    distill=distillation.make(
      read_by or model,
      loss=loss,
      weight=WEIGHT,
      policy_weight=POLICY_WEIGHT,
      teacher=teacher,
      top_k=top_k,
      temperature=1.0,
      chunk_tokens=16,
      mesh=mesh,
    ),
  )


@functools.cache
def gradient_of(loss, mesh=None, model=MODEL, **options):
  """Returns the jitted gradient of a loss, with the loss and its sums."""
  loss_fn = loss_of(loss, mesh, model, **options)
  return jax.jit(jax.value_and_grad(loss_fn, has_aux=True))


def logps(params, ids, model=MODEL, vocab_size=CONFIG.vocab_size):
  """Returns log-probabilities [S, V] behind each id but the last."""
  hidden, _ = model.apply(
    {"params": params},
    jnp.asarray(ids[None, :-1]),
    jnp.arange(len(ids) - 1)[None],
    jnp.ones((1, len(ids) - 1), jnp.int32),
  )
  logits = hidden[0] @ transformer.unembedding(params, model.config)
  return jax.nn.log_softmax(logits[:, :vocab_size])


def by_definition(loss, items, params, teacher_params, read_by=MODEL):
  """Returns the loss of sequences that are read one by one."""
  total = 0.0
  vocab_size = min(CONFIG.vocab_size, read_by.config.vocab_size)
  for item in items:
    own = logps(params, item.token_ids)
    targets = item.token_ids[1:]
    mask = item.loss_mask[1:]
    chosen = jnp.take_along_axis(own, targets[:, None], 1)[:, 0]
    advantages = POLICY_WEIGHT * item.advantage * jnp.ones(len(targets))
    values = jnp.zeros(len(targets))
    if item.teacher_ids is not None:
      # The completion begins at the third id: the same last ids for both.
      count = len(targets) - 2
      theirs = logps(teacher_params, item.teacher_ids, read_by, vocab_size)
      theirs = theirs[-count:]
      theirs = jax.lax.stop_gradient(theirs)
      if loss == "policy_gradient":
        their = jnp.take_along_axis(theirs, targets[-count:, None], 1)[:, 0]
        gain = jax.lax.stop_gradient(their - chosen[-count:])
        advantages = advantages.at[-count:].add(WEIGHT * gain)
      else:
        p = logps(params, item.token_ids, vocab_size=vocab_size)[-count:]
        pairs = [(1.0, p, theirs)]
        if loss == "forward_kl":
          pairs = [(1.0, theirs, p)]
        if loss == "jensen_shannon":
          middle = jnp.log((jnp.exp(p) + jnp.exp(theirs)) / 2)
          pairs = [(0.5, p, middle), (0.5, theirs, middle)]
        for share, a, b in pairs:
          kl = jnp.sum(jnp.exp(a) * (a - b), -1)
          values = values.at[-count:].add(WEIGHT * share * kl)
    values = values - advantages * chosen
    total += jnp.sum(mask * values) / (len(items) * mask.sum())
  return total


@pytest.mark.parametrize(
  "loss, teacher",
  [
    ("reverse_kl", "initial"),
    ("policy_gradient", "initial"),
    ("forward_kl", "policy"),
  ],
)
@pytest.mark.slow  # `test_a_teacher_may_have_another_shape` is as strict.
def test_the_gradient_of_packed_rows_is_that_of_the_definition(loss, teacher):
  items = examples()
  params, other = init(jax.random.key(0)), init(jax.random.key(1))
  batch = batch_of(items)
  assert batch.segment_ids.max() > 1
  assert batch.teacher is not None and batch.teacher.segment_ids.max() > 1
  gradient = gradient_of(loss, teacher=teacher)
  (value, sums), grads = gradient(params, batch, Fixed(reference=other))
  read = other if teacher == "initial" else params

  @jax.jit
  @jax.grad
  def definition(params):
    # The policy's loss -A r has the gradient of -A log p.
    return by_definition(loss, items, params, read)

  close(grads, definition(params))
  taught = [i.loss_mask.sum() for i in items if i.teacher_ids is not None]
  assert sums["distill/fraction"] == sum(taught)
  assert np.isfinite(value)


@pytest.mark.parametrize(
  "loss, other",
  [
    ("reverse_kl", SMALLER),
    pytest.param("forward_kl", WIDER, marks=pytest.mark.slow),
    pytest.param("jensen_shannon", WIDER, marks=pytest.mark.slow),
    pytest.param("policy_gradient", WIDER, marks=pytest.mark.slow),
  ],
)
def test_a_teacher_may_have_another_shape(loss, other):
  """Ids that only one embedding has are left out of both distributions."""
  fewest = min(CONFIG.vocab_size, other.config.vocab_size)
  items = [
    dataclasses.replace(
      item,
      token_ids=item.token_ids % fewest,
      teacher_ids=None
      if item.teacher_ids is None
      else item.teacher_ids % fewest,
    )
    for item in examples()
  ]
  params = init(jax.random.key(0))
  read = transformer.init_params(other, jax.random.key(1))
  gradient = gradient_of(loss, teacher="another", read_by=other)
  _, grads = gradient(params, batch_of(items), Fixed(teacher=read))

  @jax.jit
  @jax.grad
  def definition(params):
    return by_definition(loss, items, params, read, other)

  close(grads, definition(params))


def test_rows_of_any_packing_have_the_same_gradient():
  items = examples()
  params = init(jax.random.key(0))
  gradient = gradient_of("policy_gradient", teacher="initial")
  fixed = Fixed(reference=init(jax.random.key(1)))
  packed, apart = (
    gradient(params, batch_of(items, most), fixed)[1] for most in (32, 1)
  )
  close(packed, apart)


def test_targets_without_a_policy_loss_are_taught():
  """As with `learner.top_entropy_fraction`."""
  params = init(jax.random.key(0))
  fixed = Fixed(reference=init(jax.random.key(1)))
  gradient = gradient_of("reverse_kl", teacher="initial")
  batch = batch_of(examples())
  nothing = np.zeros_like(batch.loss_weights)
  _, dropped = gradient(params, batch.replace(policy_weights=nothing), fixed)
  _, without = gradient(params, batch.replace(advantages=nothing), fixed)
  close(dropped, without)
  assert max(abs(leaf).max() for leaf in jax.tree.leaves(dropped)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
  "loss, other",
  [
    ("reverse_kl", None),
    ("policy_gradient", None),
    ("jensen_shannon", WIDER),
  ],
)
def test_eight_devices_equal_one(loss, other):
  """Rows are split over four devices, the vocabulary over two."""
  items = examples()
  params = init(jax.random.key(0))
  batch, fixed, options = batch_of(items), Fixed(), {}
  if other is not None:
    read = transformer.init_params(other, jax.random.key(1))
    fixed = Fixed(teacher=read)
    options = {"teacher": "another", "read_by": other}
  gradient = gradient_of(loss, **options)
  (value, _), grads = gradient(params, batch, fixed)
  mesh = mesh_lib.make_mesh({"tensor": 2, "context": 4})
  shardings = mesh_lib.token_sharding(mesh)
  placed = jax.tree.map(lambda x: jax.device_put(x, shardings), batch)
  gradient = gradient_of(loss, mesh, **options)
  (found, _), others = gradient(params, placed, fixed)
  np.testing.assert_allclose(found, value, rtol=1e-5)
  close(grads, others)


def test_the_policy_gradient_is_on_average_the_reverse_kl_s():
  """Each token that may follow is weighted by its probability."""
  prompt, told = np.array([3, 5], np.int32), np.array([9, 3, 5], np.int32)
  items = [
    packing.TrainingExample(
      np.append(prompt, np.int32(token)),
      np.arange(3) == 2,
      0.0,
      np.zeros(3, np.float32),
      teacher_ids=np.append(told, np.int32(token)),
    )
    for token in range(CONFIG.vocab_size)
  ]
  params, other = init(jax.random.key(0)), init(jax.random.key(1))
  batch = batch_of(items)
  probabilities = np.exp(logps(params, items[0].token_ids)[-1])
  weights = batch.loss_mask * probabilities[batch.targets]
  batch = batch.replace(loss_weights=weights)
  fixed = Fixed(reference=other)
  expected, exact = (
    gradient_of(loss, teacher="initial")(params, batch, fixed)[1]
    for loss in ("policy_gradient", "reverse_kl")
  )
  close(expected, exact)


@pytest.mark.parametrize(
  "changes, key",
  [
    ({"top_k": 3, "loss": "policy_gradient"}, "top_k"),
    ({"policy_weight": 0.0}, "policy_weight"),
    ({"context": ()}, "context"),
    ({"context": (), "teacher": "initial"}, "context"),
    ({"teacher": ""}, "teacher"),
    ({"feedback_text": "no place"}, "feedback_text"),
  ],
)
def test_settings_without_effect_are_refused(changes, key):
  with pytest.raises(Invalid, match=f"^{key}=.*: expected"):
    DistillSettings(**changes)


def test_a_teacher_that_adds_nothing_has_rows_of_the_policy():
  told = DistillSettings(weight=1.0, teacher="hf:A/B", text_tokens=100)
  assert told.longest_row(40) == 144
  plain = dataclasses.replace(told, context=())
  assert plain.longest_row(40) == 40 and plain.other_model == "hf:A/B"
  assert dataclasses.replace(told, weight=0.0).other_model == ""
  assert dataclasses.replace(told, teacher="initial").other_model == ""
