"""The verbs against torch, on the exported model."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
import torch
import transformers

from azr_jax.learner import objective, packing, train_state, update
from azr_jax.learner.objective import Fixed
from azr_jax.models import adapters, safetensors_io, transformer
from azr_jax.models.adapters import Lora
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.settings import ShardingSettings
from azr_jax.verbs import data, losses, programs, rows
from azr_jax.verbs.data import DataLimits, Datum
from azr_jax.verbs.programs import Adam
from azr_jax.verbs.trainable import Trainable

CONFIG = ModelConfig(
  vocab_size=40,
  hidden_size=16,
  num_layers=2,
  num_heads=2,
  num_kv_heads=1,
  head_size=8,
  mlp_size=24,
  rope_theta=1e4,
  norm_eps=1e-6,
  tie_embeddings=False,
  max_positions=64,
)
RULES = ShardingSettings().rules()
MODEL = transformer.Transformer(CONFIG)
PARAMS = transformer.init_params(MODEL, jax.random.key(0))
LIMITS = DataLimits(longest=32, vocab_size=40)
SHAPES = rows.RowShapes({32: (1, 4)}, max_sequences_per_row=8, width=16)
ADAM = Adam(0.01, 0.9, 0.95, 1e-8, 0.1, grad_clip_norm=1.0)
CLIP = {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}
CONFIGS = {name: CLIP for name in ("ppo", "cispo", "gspo")} | {
  "dro": {"beta": 0.3}
}
DRAWN = np.random.default_rng(0)


def datum(length, inner=()):
  """A random sequence whose first two targets belong to a prompt."""
  is_own = (np.arange(length) >= 2).reshape(-1, *[1] * len(inner))
  shape = (length, *inner)
  return Datum(
    DRAWN.integers(0, 40, length).astype(np.int32),
    DRAWN.integers(0, 40, shape).astype(np.int32),
    {
      "weights": (DRAWN.normal(size=shape) * is_own).astype(np.float32),
      "advantages": (DRAWN.normal(size=shape) * is_own).astype(np.float32),
      "logprobs": (DRAWN.normal(-3.6, 0.4, shape) * is_own).astype(np.float32),
      "sequence_ratio_mask": np.broadcast_to(is_own, shape).astype(np.float32),
    },
  )


DATA = [datum(length) for length in (9, 20, 5, 32, 14)]


def placed(functions, trained):
  """Copies of parameters in their shardings, as they are loaded."""
  return jax.tree.map(
    lambda x, like: jax.device_put(np.array(x), like.sharding),
    *(trained, functions.abstract.params),
  )


def make(mesh, lora=None, shapes=SHAPES):
  model = MODEL.clone(lora=lora)
  functions = programs.make(model, mesh, RULES, chunk_tokens=64)
  base, trained = {}, PARAMS
  if lora is not None:
    base = PARAMS
    trained = transformer.init_adapters(model, jax.random.key(1))
  state = functions.start(placed(functions, trained))
  return Trainable(functions, shapes, LIMITS, Fixed(base), state)


@pytest.fixture(scope="module", name="training")
def make_training(one_device_mesh):
  return make(one_device_mesh)


@pytest.fixture(name="fresh")
def reset(training):
  """The shared training at its start, so that nothing is compiled twice."""
  functions = training._functions
  training.restore(functions.start(placed(functions, PARAMS)))
  return training


@pytest.fixture(scope="module", name="folder")
def export(tmp_path_factory):
  folder = tmp_path_factory.mktemp("exported")
  safetensors_io.save(PARAMS, CONFIG, folder, dtype="float32", eos_ids=(0,))
  return folder


def torch_loss(model, loss, data, config):
  """The protocol's formulas; returns loss and log-probabilities."""
  total, found = torch.zeros(()), []
  for one in data:
    logits = model(torch.tensor(one.tokens[None]).long()).logits[0]
    targets = torch.tensor(one.targets).long()
    lp = logits.log_softmax(-1)
    lp = lp.gather(1, targets.reshape(len(lp), -1)).reshape(targets.shape)
    w, a, q, mask = (
      torch.tensor(one.inputs[name])
      for name in ("weights", "advantages", "logprobs", "sequence_ratio_mask")
    )
    low, high = (
      config.get("clip_low_threshold"),
      config.get("clip_high_threshold"),
    )
    ratio = torch.exp(lp - q)
    if loss == "gspo":
      mean = ((lp - q) * mask).sum() / mask.sum()
      ratio = torch.exp(mean).detach() * torch.exp(lp - lp.detach())
    if loss == "cross_entropy":
      total = total - (w * lp).sum()
    elif loss == "importance_sampling":
      total = total - (ratio * a).sum()
    elif loss in ("ppo", "gspo"):
      total = total - torch.minimum(ratio * a, ratio.clamp(low, high) * a).sum()
    elif loss == "cispo":
      total = total - (ratio.clamp(low, high).detach() * lp * a).sum()
    else:
      total = total - (lp * a - config["beta"] / 2 * (lp - q) ** 2).sum()
    found.append(lp.detach().numpy())
  return total, found


@pytest.mark.parametrize(
  "loss",
  [
    loss
    if loss in ("cross_entropy", "ppo", "gspo")
    else pytest.param(loss, marks=pytest.mark.slow)
    for loss in losses.LOSSES
  ],
)
def test_two_steps_equal_torch_s(fresh, folder, loss):
  model = transformers.AutoModelForCausalLM.from_pretrained(folder).float()
  optimizer = torch.optim.AdamW(
    model.parameters(),
    lr=ADAM.learning_rate,
    betas=(ADAM.beta1, ADAM.beta2),
    eps=ADAM.eps,
    weight_decay=ADAM.weight_decay,
  )
  config = CONFIGS.get(loss, {})
  for _ in range(2):
    parts = [
      fresh.forward_backward(some, loss, config)
      for some in (DATA[:2], DATA[2:])
    ]
    want, logprobs = torch_loss(model, loss, DATA, config)
    assert sum(part.loss for part in parts) == pytest.approx(
      want.item(), rel=1e-4, abs=1e-4
    )
    got = [x for part in parts for x in part.logprobs]
    for x, y in zip(got, logprobs, strict=True):
      np.testing.assert_allclose(x, y, atol=1e-4)
    optimizer.zero_grad()
    want.backward()
    norm = torch.nn.utils.clip_grad_norm_(
      model.parameters(), ADAM.grad_clip_norm
    )
    optimizer.step()
    metrics = fresh.optim_step(ADAM)
    assert metrics["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
  got = fresh.forward(DATA)
  _, logprobs = torch_loss(model, "cross_entropy", DATA, {})
  for x, y in zip(got.logprobs, logprobs, strict=True):
    np.testing.assert_allclose(x, y, atol=1e-4)


def test_positions_may_have_several_targets(fresh, folder):
  model = transformers.AutoModelForCausalLM.from_pretrained(folder).float()
  mixed = [datum(6, (3,)), DATA[0], datum(9, (2,))]
  got = fresh.forward_backward(mixed)
  want, logprobs = torch_loss(model, "cross_entropy", mixed, {})
  assert got.loss == pytest.approx(want.item(), rel=1e-4)
  for x, y in zip(got.logprobs, logprobs, strict=True):
    np.testing.assert_allclose(x, y, atol=1e-4)
  want.backward()
  grads = [p.grad for p in model.parameters() if p.grad is not None]
  norm = torch.stack([(g**2).sum() for g in grads]).sum().sqrt()
  norm_got = fresh.optim_step(ADAM)["grad_norm"]
  assert norm_got == pytest.approx(norm.item(), rel=1e-4)


@pytest.mark.slow
def test_adapters_and_meshes_change_nothing(one_device_mesh):
  """Eight devices train an adapter as one does, to the order of sums."""
  lora = Lora(rank=2, alpha=32.0)
  mesh = mesh_lib.make_mesh({"data": 4, "fsdp": 2})
  shapes = dataclasses.replace(SHAPES, rows={32: (8,)})
  found = []
  for training in (
    make(one_device_mesh, lora),
    make(mesh, lora, shapes),
  ):
    for _ in range(2):
      training.forward_backward(DATA, "ppo")
      training.optim_step(ADAM)
    found.append(training.forward(DATA))
    assert {*training.state.params} == {*adapters.adapters_of(training.params)}
  one, eight = found
  for x, y in zip(one.logprobs, eight.logprobs, strict=True):
    np.testing.assert_allclose(x, y, atol=1e-4)
  assert one.loss != pytest.approx(
    make(one_device_mesh, lora).forward(DATA).loss
  )


def test_calls_of_any_size_compile_nothing_new(fresh):
  functions = fresh._functions
  for count in (1, 3, 5, 11):  # The last has several batches.
    fresh.forward_backward((DATA * 3)[:count], "ppo")
    fresh.optim_step(ADAM)
  backward, step = functions.backward["ppo"], functions.step
  sizes = backward._cache_size(), step._cache_size()
  for count in range(1, 12):
    fresh.forward_backward(
      (DATA * 3)[:count], "ppo", {"clip_low_threshold": 0.5}
    )
    fresh.optim_step(ADAM._replace(learning_rate=1e-3 * count))
  assert (backward._cache_size(), step._cache_size()) == sizes
  assert sizes[0] == len(SHAPES.rows[32]) + 1


def test_a_gradient_that_is_not_finite_changes_nothing(fresh):
  before = fresh.forward(DATA).loss
  inputs = {**DATA[0].inputs, "weights": np.full(9, 3e38, np.float32)}
  huge = dataclasses.replace(DATA[0], inputs=inputs)
  fresh.forward_backward([huge])
  assert fresh.optim_step(ADAM)["skipped"] == 1
  assert fresh.forward(DATA).loss == before
  fresh.forward_backward(DATA)
  assert fresh.optim_step(ADAM)["skipped"] == 0
  assert fresh.forward(DATA).loss != before


@pytest.mark.parametrize(
  "change, message",
  [
    ({"tokens": np.arange(33, dtype=np.int32)}, "33 tokens: expected 1 to 32"),
    (
      {"tokens": np.full(9, 40, np.int32)},
      "ids from 40 to 40: expected 0 to 39",
    ),
    ({"targets": np.zeros(8, np.int32)}, r"shape \(8,\): expected 9 tokens"),
    ({"targets": np.zeros((9, 2), np.int32)}, "expected one target per token"),
    (
      {"inputs": {"advantages": np.zeros(9, np.float32)}},
      "logprobs is missing",
    ),
    (
      {
        "inputs": {
          "logprobs": np.zeros(9, np.float32),
          "advantages": np.full(9, np.nan, np.float32),
        }
      },
      "advantages is infinite or NaN",
    ),
    (
      {
        "inputs": {
          "logprobs": np.zeros(9, np.float32),
          "advantages": np.zeros(3, np.float32),
        }
      },
      r"advantages has shape \(3,\): expected \(9,\)",
    ),
  ],
)
def test_bad_data_are_refused_by_name(training, change, message):
  some = [DATA[1], dataclasses.replace(DATA[0], **change)]
  with pytest.raises(ValueError, match=f"^datum 1: .*{message}"):
    training.forward_backward(some, "ppo")


@pytest.mark.parametrize(
  "loss, config, message",
  [
    (
      "stable_reinforce",
      {},
      "such as importance_sampling: this one has no pub",
    ),
    (
      "ppo",
      {"beta": 1.0},
      "loss_fn_config 'beta' of loss_fn='ppo': expected cl",
    ),
    ("cross_entropy", {"beta": 1.0}, "expected no configuration"),
  ],
)
def test_unknown_losses_and_numbers_are_refused(
  training, loss, config, message
):
  with pytest.raises(ValueError, match=message):
    training.forward_backward(DATA, loss, config)


def test_a_step_equals_the_update_of_train(fresh, one_device_mesh):
  """For the same sequences, of which each target weighs 1 / 5."""
  adam = ADAM._replace(grad_clip_norm=0.0)
  optimizer = adam.optimizer()
  shardings = train_state.state_shardings(
    transformer.abstract_params(MODEL), optimizer, one_device_mesh, RULES
  )
  loss_fn = objective.make_supervised_loss(
    MODEL, chunk_tokens=64, mesh=one_device_mesh
  )
  step: Any = update.make_update(loss_fn, optimizer, shardings, one_device_mesh)
  examples = [
    packing.TrainingExample(
      one.tokens, np.arange(len(one.tokens)) >= 2, 0.0, one.inputs["logprobs"]
    )
    for one in DATA
  ]
  packed = packing.pack(
    examples, row_length=32, rows_multiple=4, aggregation="sequence_sum"
  )
  state, _ = step(
    fresh.state,
    update.place(update.to_micro_batches(packed, 4), one_device_mesh),
    Fixed(),
  )
  want = jax.tree.map(np.asarray, state.params)
  fresh.restore(fresh._functions.start(placed(fresh._functions, PARAMS)))
  fresh.forward_backward(
    [data.supervised(one.tokens[:2], one.tokens[2:], 1 / 5) for one in DATA]
  )
  fresh.optim_step(adam)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6),
    *(fresh.state.params, want),
  )
