"""The update: chunked scores, packing, accumulation, sharding."""

import dataclasses
import functools
import re
from typing import NoReturn, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_updates
from jax.sharding import NamedSharding, PartitionSpec
from tiny_updates import (
  CONFIG,
  MODEL,
  RULES,
  batch_of,
  close,
  init,
  policy_loss,
  sequences,
  updated,
)
from typed import present

from azr_jax.configs import azr, code_interpreter, countdown, orz
from azr_jax.lab.compile import collectives, cost, hlo
from azr_jax.learner import (
  divergences,
  learner,
  logprobs,
  packing,
  train_state,
  update,
)
from azr_jax.learner.objective import Fixed
from azr_jax.learner.optimizer import make_optimizer
from azr_jax.learner.settings import OptimizerSettings
from azr_jax.models import attention, products, splash, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.trainer import settings
from azr_jax.types import Params


@pytest.mark.parametrize("count", [0, 1, 6, 20])
def test_the_padding_that_is_left_out_is_empty(count):
  items = sequences(count)
  packed = packing.pack(
    items,
    row_length=16,
    rows_multiple=24,
    aggregation="token_mean",
    rng=np.random.default_rng(0),
  )
  batch = update.to_micro_batches(packed, 3)
  held = update.without_padding(batch)
  used = len(held.tokens)
  assert used == update.nonempty_micro_batches(batch) < len(batch.tokens)
  for whole, part in zip(*map(jax.tree.leaves, (batch, held)), strict=True):
    assert np.shares_memory(whole, part) or not count
    np.testing.assert_array_equal(whole[:used], part)
    assert not np.any(whole[used:])


@pytest.mark.parametrize(
  "sizes, chunk",
  [
    *((None, 1), (None, 5), (None, 1000)),
    *(((1, 1, 1), 5), ((1, 2, 4), 1), ((1, 2, 4), 1000), ((2, 1, 3), 5)),
  ],
)
def test_chunked_logprobs_equal_log_softmax(sizes, chunk):
  """The vocabulary is whole or, if `tensor` divides it, sharded."""
  mesh = None
  if sizes is not None:
    axes = dict(zip(tiny_updates.AXES, sizes, strict=False))
    mesh = mesh_lib.make_mesh(axes, jax.devices()[: int(np.prod(sizes))])
  rng = np.random.default_rng(0)
  hidden = jnp.asarray(rng.normal(size=(2, 7, 8)), jnp.float32)
  head = jnp.asarray(rng.normal(size=(8, 16)), jnp.float32)
  targets = jnp.asarray(rng.integers(0, 16, (2, 7)), jnp.int32)
  weights = jnp.asarray(rng.normal(size=(2, 2, 7)), jnp.float32)

  def scores(hidden, head):
    return logprobs.chunked_logprobs(
      hidden, head, targets, temperature=0.7, chunk_tokens=chunk, mesh=mesh
    )

  def reference(hidden, head):
    logps = jax.nn.log_softmax((hidden @ head) / 0.7)
    chosen = jnp.take_along_axis(logps, targets[..., None], -1)[..., 0]
    return chosen, -jnp.sum(jnp.exp(logps) * logps, -1)

  def loss(function):
    return lambda *x: sum(map(jnp.vdot, function(*x), weights))

  close(jax.jit(scores)(hidden, head), reference(hidden, head))
  close(
    *(
      jax.jit(jax.grad(loss(f), argnums=(0, 1)))(hidden, head)
      for f in (scores, reference)
    )
  )


@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_positions_in_no_loss_change_nothing(chunk):
  rng = np.random.default_rng(0)
  hidden = jnp.asarray(rng.normal(size=(3, 7, 8)), jnp.float32)
  head = jnp.asarray(rng.normal(size=(8, 16)), jnp.float32)
  targets = jnp.asarray(rng.integers(0, 16, (3, 7)), jnp.int32)
  mask = jnp.asarray(rng.random((3, 7)) < 0.4, jnp.float32)

  weights = mask * jnp.asarray(rng.normal(size=(3, 7)), jnp.float32)

  def loss(hidden, head, mask):
    found, entropy = logprobs.chunked_logprobs(
      hidden, head, targets, temperature=0.7, chunk_tokens=chunk, mask=mask
    )
    return jnp.vdot(found, weights) + 0.3 * jnp.vdot(entropy, weights)

  grad = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
  close(grad(hidden, head, mask), grad(hidden, head, None), atol=2e-5)


def test_products_with_the_head_have_the_compute_type():
  shapes = ((2, 7, 8), jnp.bfloat16), ((8, 16), jnp.float32)
  hidden, head = (jnp.zeros(*shape) for shape in shapes)
  targets = jnp.zeros((2, 7), jnp.int32)

  def loss(hidden, head):
    scores = logprobs.chunked_logprobs(
      hidden, head, targets, temperature=1.0, chunk_tokens=4
    )
    kl = divergences.chunked_divergence(
      *("reverse_kl", hidden, head, hidden, head),
      temperature=1.0,
      chunk_tokens=4,
    )
    return sum(map(jnp.sum, (*scores, kl)))

  lowered = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(hidden, head)
  types = re.findall(
    r"dot_general.*: \(tensor<\S*x(\w+)>, tensor<\S*x(\w+)>\)",
    lowered.as_text(),
  )
  assert types and set(types) == {("bf16", "bf16")}


def test_chunks_move_the_head_once():
  """The loop over chunks has no collectives, and no [B, S, V] array exists."""
  mesh = mesh_lib.make_mesh({"data": 1, "fsdp": 8, "tensor": 1})
  rows = mesh_lib.batch_sharding(mesh)
  hidden = jax.ShapeDtypeStruct((8, 16, 32), jnp.float32, sharding=rows)
  targets = jax.ShapeDtypeStruct((8, 16), jnp.int32, sharding=rows)
  split = NamedSharding(mesh, PartitionSpec("fsdp"))
  head = jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=split)

  def compiled(chunk_tokens):
    def loss(hidden, head, targets):
      found, entropy = logprobs.chunked_logprobs(
        hidden,
        head,
        targets,
        temperature=1.0,
        chunk_tokens=chunk_tokens,
        mesh=mesh,
      )
      return jnp.sum(found) + jnp.sum(entropy)

    grad = jax.jit(jax.grad(loss, argnums=(0, 1)))
    return present(grad.lower(hidden, head, targets).compile().as_text())

  few, many = compiled(8), compiled(1)

  def counts(text):
    found = cost.cost(hlo.parse(text)).at({}).collectives
    return {kind: c.count for kind, c in collectives.totals(found).items()}

  assert counts(few) == counts(many)
  for shape in ("16,64", "16,1,64", "1,16,64"):
    assert f"[{shape}]" not in few


@pytest.fixture(scope="module")
def one_big_batch(one_device_mesh):
  """Returns parameters and metrics after an update on a single micro-batch."""
  batch = batch_of(8)
  assert len(batch.tokens) == 1
  return updated(one_device_mesh, batch)


@pytest.mark.parametrize(
  "count, span, is_whole, micro_batches",
  [
    (1, (0, 1), True, [0]),
    (3, (0, 3), True, [0, 1, 2]),
    (3, (1, 2), False, [1]),
    (1, (0, 1), False, [0]),
    (1, (0, 0), False, []),
  ],
)
def test_gradients_are_those_of_the_named_micro_batches(
  count, span, is_whole, micro_batches
):
  def loss_fn(params, micro, unused):
    del unused
    return jnp.sum(params["w"] * micro), {"sum": jnp.sum(micro)}

  rows = jnp.arange(2.0 * count).reshape(count, 2) + 1
  _, sums, grads = update.accumulate(
    loss_fn, {"w": jnp.ones(2)}, rows, Fixed(), *span, is_whole=is_whole
  )
  wanted = sum((rows[i] for i in micro_batches), jnp.zeros(2))
  np.testing.assert_array_equal(grads["w"], wanted)
  assert sums["sum"] == wanted.sum()


def test_accumulated_and_packed_updates_equal_one_big_batch(
  one_big_batch, one_device_mesh
):
  whole, metrics = one_big_batch
  pieces, others = updated(one_device_mesh, batch_of(1))
  apart, _ = updated(one_device_mesh, batch_of(8, row_length=13))
  close(whole, pieces)
  close(whole, apart)
  for name in ("learner/loss", "learner/entropy", "rollout/logprob_gap"):
    assert metrics[name] == pytest.approx(others[name], abs=1e-5)


@pytest.mark.parametrize(
  "sizes, rows, attend",
  [
    pytest.param(
      {"fsdp": 4, "tensor": 2},
      8,
      attention.xla_attention,
      marks=pytest.mark.slow,
    ),
    # Each row is split over four devices.
    pytest.param(
      {"fsdp": 2, "context": 4},
      2,
      attention.xla_attention,
      marks=pytest.mark.slow,
    ),
    ({"tensor": 2, "context": 4}, 1, None),
  ],
)
def test_eight_devices_equal_one(one_big_batch, sizes, rows, attend):
  mesh = mesh_lib.make_mesh(sizes)
  model = MODEL.clone(
    multiply=products.make(mesh, RULES),
    attend=attend or splash.make_attention(mesh, interpret=True),
  )
  params, metrics = updated(mesh, batch_of(rows), model=model)
  close(params, one_big_batch[0])
  loss = one_big_batch[1]["learner/loss"]
  assert metrics["learner/loss"] == pytest.approx(loss, rel=1e-5)


def test_on_policy_gradient_is_reinforce(one_device_mesh):
  """With old = new, the surrogate's gradient is -A grad log p."""
  batch = batch_of(8)
  params, metrics = updated(one_device_mesh, batch, on_policy=True)
  start = init(jax.random.key(0))
  flat = jax.tree.map(lambda x: jnp.asarray(x.reshape(-1, x.shape[-1])), batch)

  def reinforce(params):
    hidden, _ = MODEL.apply(
      {"params": params}, flat.tokens, flat.positions, flat.segment_ids
    )
    logits = hidden @ transformer.unembedding(params, CONFIG)
    logps = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(logps, flat.targets[..., None], -1)[..., 0]
    entropy = -jnp.sum(jnp.exp(logps) * logps, -1)
    weights = flat.loss_mask / jnp.sum(flat.loss_mask)
    return -jnp.sum(weights * (flat.advantages * chosen + 0.01 * entropy))

  grads = jax.jit(jax.grad(reinforce))(start)
  want = jax.tree.map(lambda p, g: p - g, start, grads)
  close(params, want, atol=1e-5)
  assert "learner/clip_fraction" not in metrics  # All ratios are 1.


def test_rloo_s_loss_is_the_mean_over_sequences(one_device_mesh):
  """-mean(w A log p(sequence)) - entropy over all tokens, w clipped."""
  items = [
    # Near chance level, some sequence ratios are above 2 and some below.
    dataclasses.replace(item, logprobs=item.logprobs - 1.1)
    for item in sequences()
  ]
  packed = packing.pack(
    items, row_length=16, rows_multiple=8, aggregation="sequence_sum"
  )
  batch = update.to_micro_batches(packed, 8)
  params, _ = updated(
    one_device_mesh,
    batch,
    on_policy=True,
    policy_loss="sequence_weighted",
    iw_clip_max=2.0,
  )
  start = init(jax.random.key(0))
  tokens = sum(int(item.loss_mask[1:].sum()) for item in items)

  @jax.jit
  @functools.partial(jax.grad, has_aux=True)
  def gradient(params, ids, mask, old, advantage):
    """Returns a sequence's gradient and ratio; padding may follow it."""
    hidden, _ = MODEL.apply(
      {"params": params},
      ids[None, :-1],
      jnp.arange(len(ids) - 1)[None],
      jnp.ones((1, len(ids) - 1), jnp.int32),
    )
    logits = hidden @ transformer.unembedding(params, CONFIG)
    logps = jax.nn.log_softmax(logits)[0]
    chosen = jnp.take_along_axis(logps, ids[1:, None], -1)[:, 0]
    ratio = jnp.exp(jax.lax.stop_gradient(jnp.sum(mask * (chosen - old))))
    weight = jnp.minimum(ratio, 2.0)
    entropy = -jnp.sum(jnp.exp(logps) * logps, -1)
    loss = -weight * advantage * jnp.sum(mask * chosen) / len(items)
    return loss - 0.01 * jnp.sum(mask * entropy) / tokens, ratio

  want, ratios = start, []
  for item in items:
    padding = (0, 14 - len(item.token_ids))
    grads, ratio = gradient(
      start,
      np.pad(item.token_ids, padding),
      np.pad(item.loss_mask, padding)[1:].astype(np.float32),
      np.pad(item.logprobs, padding)[1:],
      item.advantage,
    )
    want = jax.tree.map(lambda p, g: p - g, want, grads)
    ratios.append(ratio)
  close(params, want, atol=2e-5)
  assert min(ratios) < 2 < max(ratios)


@pytest.mark.parametrize(
  "estimator", ["k3", pytest.param("full", marks=pytest.mark.slow)]
)
def test_kl_is_zero_at_the_reference_and_pulls_towards_it(
  one_device_mesh, estimator
):
  batch = batch_of(8)
  batch = dataclasses.replace(batch, advantages=0 * present(batch.advantages))
  here, there = init(jax.random.key(0)), init(jax.random.key(1))
  options = dict(
    on_policy=True, kl_coef=0.1, entropy_coef=0.0, kl_estimator=estimator
  )
  _, at_home = updated(one_device_mesh, batch, reference=here, **options)
  assert at_home["learner/kl"] == pytest.approx(0, abs=1e-6)
  assert at_home["learner/grad_norm"] == pytest.approx(0, abs=1e-5)
  moved, before = updated(one_device_mesh, batch, reference=there, **options)
  assert before["learner/kl"] > 0

  @jax.jit
  def kl(params):
    loss_fn = policy_loss(None, **options)
    micro = jax.tree.map(lambda x: jnp.asarray(x[0]), batch)
    return loss_fn(params, micro, Fixed(reference=there))[1]["learner/kl"]

  assert kl(jax.tree.map(jnp.asarray, moved)) < kl(here)


def test_weight_decay_spares_scales():
  params = init(jax.random.key(0))
  optimizer = make_optimizer(
    **vars(
      OptimizerSettings(
        learning_rate=1.0, b2=0.99, weight_decay=0.1, grad_clip=0.0
      )
    )
  )
  zeros = jax.tree.map(jnp.zeros_like, params)
  state = jax.jit(optimizer.init)(params)
  updates, _ = jax.jit(optimizer.update)(zeros, state, params)
  updates = cast(Params, updates)
  assert float(jnp.abs(updates["final_norm"]["scale"]).max()) == 0
  assert float(jnp.abs(updates["embedding"]).max()) > 0


def optimizer_in_parts(**settings):
  """Returns an optimizer and its state's shardings over four devices."""
  optimizer = make_optimizer(**vars(OptimizerSettings(**settings)))
  mesh = mesh_lib.make_mesh({"fsdp": 2, "tensor": 2}, jax.devices()[:4])
  shardings = train_state.state_shardings(
    transformer.abstract_params(MODEL), optimizer, mesh, RULES
  )
  return optimizer, shardings


@pytest.mark.parametrize("muon_learning_rate", [0.0, 0.02])
def test_each_moment_lies_like_its_parameter(muon_learning_rate):
  """Optax itself maps each moment to its parameter, also in Muon's groups."""
  optimizer, shardings = optimizer_in_parts(
    muon_learning_rate=muon_learning_rate
  )
  found = []
  optax.tree.map_params(
    optimizer.init,
    lambda moment, param: found.append((moment, param)),
    shardings.opt_state,
    shardings.params,
    is_leaf=lambda node: isinstance(node, optax.MaskedNode),
  )
  pairs = [pair for pair in found if not isinstance(pair[0], optax.MaskedNode)]
  count = len(jax.tree.leaves(shardings.params))
  kernels = 7 if muon_learning_rate else 0  # Muon keeps one moment, AdamW two.
  assert len(pairs) == 2 * count - kernels
  for moment, param in pairs:
    assert moment == param
    assert not param.is_fully_replicated


def test_muon_in_parts_is_muon_on_one_device():
  optimizer, shardings = optimizer_in_parts(
    learning_rate=0.01, muon_learning_rate=0.02
  )
  params = jax.device_get(init(jax.random.key(0)))
  grads = jax.device_get(init(jax.random.key(1)))

  @jax.jit
  def moved(params, opt_state, grads):
    for _ in range(2):
      updates, opt_state = optimizer.update(grads, opt_state, params)
      params = optax.apply_updates(params, updates)
    return params

  start = optimizer.init(params)
  alone = moved(params, start, grads)
  parts = moved(
    jax.device_put(params, shardings.params),
    jax.device_put(start, shardings.opt_state),
    jax.device_put(grads, shardings.params),
  )
  close(jax.device_get(parts), jax.device_get(alone))


def test_linear_decay_reaches_its_end():
  """Two warm-up updates, then down from 1 to 0.3 in four."""
  optimizer = make_optimizer(
    **vars(
      OptimizerSettings(
        learning_rate=1.0,
        warmup_steps=2,
        decay_steps=6,
        decay="linear",
        final_learning_rate=0.3,
        b1=0.0,
        b2=0.0,
        weight_decay=0.0,
        grad_clip=0.0,
      )
    )
  )
  params = {"w": {"kernel": jnp.ones(1)}}
  state = optimizer.init(params)
  rates = []
  for _ in range(8):
    updates, state = optimizer.update(params, state, params)
    rates.append(-float(cast(Params, updates)["w"]["kernel"][0]))
  want = [0, 0.5, 1, 0.825, 0.65, 0.475, 0.3, 0.3]
  np.testing.assert_allclose(rates, want, atol=1e-5)


def adamw_in_numpy(grads, rates, b1, b2, decay, clip, params):
  """Yields the changes that AdamW makes, by definition.

  Args:
    grads: gradients of each update, by name.
    rates: learning rate of each update.
    b1: decay of the first moment.
    b2: decay of the second moment.
    decay: weight decay of arrays with two axes.
    clip: maximum global norm; 0 disables clipping.
    params: initial parameters, by name.
  """
  first = {name: 0.0 for name in params}
  second = {name: 0.0 for name in params}
  for t, (grad, rate) in enumerate(zip(grads, rates, strict=True), start=1):
    norm = np.sqrt(sum(np.sum(g**2) for g in grad.values()))
    factor = clip / norm if clip and norm > clip else 1.0
    change = {}
    for name, g in grad.items():
      first[name] = b1 * first[name] + (1 - b1) * factor * g
      second[name] = b2 * second[name] + (1 - b2) * (factor * g) ** 2
      step = first[name] / (1 - b1**t)
      step = step / (np.sqrt(second[name] / (1 - b2**t)) + 1e-8)
      if params[name].ndim == 2:
        step = step + decay * params[name]
      change[name] = -rate * step
    params = {name: params[name] + change[name] for name in params}
    yield change


WARM = [t / 50 for t in range(4)]  # rises from 0 over 50 updates


@pytest.mark.parametrize(
  "file, variant, section, peak, rates, b1, b2, decay, clip",
  [
    (azr, "qwen2.5-7b", "", 1e-6, [1.0] * 4, 0.9, 0.999, 0.01, 1.0),
    (code_interpreter, "qwen2.5-7b", "", 1e-6, [1.0] * 4, 0.9, 0.999, 0.01, 1),
    (orz, "32b", "", 1e-6, WARM, 0.9, 0.95, 0.0, 0.0),
    (orz, "32b", "critic", 5e-6, WARM, 0.9, 0.95, 0.0, 0.0),
    (orz, "7b+published_code", "", 1e-6, WARM, 0.9, 0.95, 0.0, 1.0),
    (orz, "7b+published_code", "critic", 5e-6, WARM, 0.9, 0.95, 0.0, 1.0),
    (countdown, "qwen2.5-0.5b", "", 1e-5, [1.0] * 4, 0.9, 0.999, 1e-4, 0.0),
  ],
)
def test_a_paper_s_optimizer_is_adamw_of_the_paper_s_values(
  file, variant, section, peak, rates, b1, b2, decay, clip
):
  """Gradients of norms 10, 0.5 and 3 are clipped to 1, or not at all."""
  shared = settings.read_train(file.get_config(variant)).shared
  part = getattr(shared, section) if section else shared
  optimizer = make_optimizer(**vars(part.optimizer))
  params = {"kernel": np.array([[2.0, -1.0]]), "scale": np.array([1.0])}
  grads = [
    {"kernel": np.array([[6.0, 0.0]]), "scale": np.array([8.0])},
    {"kernel": np.array([[0.3, -0.4]]), "scale": np.array([0.0])},
    {"kernel": np.array([[1.0, 2.0]]), "scale": np.array([-2.0])},
    {"kernel": np.array([[-0.1, 0.1]]), "scale": np.array([0.1])},
  ]
  rates = [peak * rate for rate in rates]
  moved = jax.tree.map(jnp.asarray, params)
  state = optimizer.init(moved)
  update_fn = jax.jit(optimizer.update)
  wanted = adamw_in_numpy(grads, rates, b1, b2, decay, clip, params)
  for grad, want in zip(grads, wanted, strict=True):
    update, state = update_fn(jax.tree.map(jnp.asarray, grad), state, moved)
    moved = optax.apply_updates(moved, update)
    for name, change in want.items():
      got = np.asarray(cast(Params, update)[name])
      np.testing.assert_allclose(got, change, rtol=1e-4, atol=1e-12)


def no_loss(*_) -> NoReturn:
  raise AssertionError("No update was asked for.")


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["k3", "full"])
def test_a_reference_in_the_computation_s_type_changes_no_bit(
  one_device_mesh, estimator
):
  model = MODEL.clone(dtype=jnp.dtype("bfloat16"))
  params = init(jax.random.key(1))
  options = dict(kl_coef=0.1, kl_estimator=estimator, model=model)
  made = learner.make(model, no_loss, optax.sgd(1.0), one_device_mesh, RULES)
  reference = made.make_reference(params)
  assert reference["layers"]["mlp"]["up"]["kernel"].dtype == jnp.bfloat16
  want, got = (
    updated(one_device_mesh, batch_of(8), reference=ref, **options)
    for ref in (params, reference)
  )
  assert got[1] == want[1] and got[1]["learner/kl"] > 0
  jax.tree.map(np.testing.assert_array_equal, got[0], want[0])


def test_a_reference_is_a_copy(one_device_mesh):
  made = learner.make(MODEL, no_loss, optax.sgd(1.0), one_device_mesh, RULES)
  params = jax.device_put(
    init(jax.random.key(0)), mesh_lib.replicated(one_device_mesh)
  )
  reference = made.make_reference(params)
  for one, other in zip(
    jax.tree.leaves(params), jax.tree.leaves(reference), strict=True
  ):
    assert one.unsafe_buffer_pointer() != other.unsafe_buffer_pointer()
