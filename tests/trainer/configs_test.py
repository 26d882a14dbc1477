"""Every variant is valid; every wrong value is refused by name."""

import pytest

from azr_jax.trainer import checks, schema
from configs import (
  azr,
  code_interpreter,
  countdown,
  evaluate,
  orz,
  potential,
  propose,
  sft,
)


@pytest.mark.parametrize("variant", azr.VARIANTS)
def test_every_azr_variant_is_valid(variant):
  checks.check_train(azr.get_config(variant))


@pytest.mark.parametrize("variant", sft.VARIANTS)
def test_every_sft_variant_is_valid(variant):
  checks.check_sft(sft.get_config(variant))


@pytest.mark.parametrize("variant", countdown.VARIANTS)
def test_every_countdown_variant_is_valid(variant):
  checks.check_train(countdown.get_config(variant))


@pytest.mark.parametrize("variant", orz.VARIANTS)
def test_every_orz_variant_is_valid(variant):
  checks.check_train(orz.get_config(variant))


@pytest.mark.parametrize("variant", code_interpreter.VARIANTS)
def test_every_code_interpreter_variant_is_valid(variant):
  for estimator in ("grpo", "gae", "reinforce++"):
    config = code_interpreter.get_config(variant)
    config.learner.estimator = estimator
    checks.check_train(config)


@pytest.mark.parametrize(
  "change, message",
  [
    ({"order": "potential"}, "measured='': expected a file"),
    (
      {"order": "difficulty", "measured": "x", "grouping": "thresholds"},
      "grouping='thresholds': expected 'quantiles'",
    ),
    ({"max_calls": -1}, "max_calls=-1: expected"),
  ],
)
def test_what_does_not_go_together_in_code_interpreter(change, message):
  config = code_interpreter.get_config()
  config.code_interpreter.update(change)
  with pytest.raises(ValueError, match=message):
    checks.check_train(config)


@pytest.mark.parametrize("variant", potential.VARIANTS)
def test_every_potential_variant_is_valid(variant):
  checks.check(potential.get_config(variant), schema.POTENTIAL_CHECKS)


@pytest.mark.parametrize("variant", propose.VARIANTS)
def test_every_proposer_variant_is_valid(variant):
  checks.check(propose.get_config(variant), schema.PROPOSE_CHECKS)


@pytest.mark.parametrize("variant", evaluate.VARIANTS)
def test_every_evaluation_variant_is_valid(variant):
  checks.check(evaluate.get_config(variant), schema.EVALUATE_CHECKS)


@pytest.mark.parametrize(
  "key, value",
  [
    ("azr.task_types", ("deduction", "deductoin")),
    ("azr.batch_size", 0),
    ("azr.induction_inputs", 5),
    ("azr.prompt_style", "long"),
    ("azr.unlearnable_reward", "zero"),
    ("rollout.top_p", 0.9),
    ("rollout.temperature", 0.0),
    ("rollout.prompt_buckets", (256, 128)),
    ("learner.estimator", "trr"),
    ("learner.row_length", 100),
    ("optimizer.b2", 1.0),
    ("model.attention", "flash"),
    ("sharding.embed", "model"),
    ("train.steps", 0),
  ],
)
def test_a_bad_value_is_named(key, value):
  config = azr.get_config("tiny")
  config.update_from_flattened_dict({key: value})
  with pytest.raises(ValueError, match="expected") as refusal:
    checks.check_train(config)
  assert key in str(refusal.value) and repr(value) in str(refusal.value)


@pytest.mark.parametrize(
  "key, value",
  [
    ("model.source", "preset:azr-tinny"),
    ("optimizer.decay_steps", 100),
    ("data.kind", "poems"),
    ("corpus.num_inputs", 3),
  ],
)
def test_a_bad_supervised_value_is_named(key, value):
  config = sft.get_config()
  config.update_from_flattened_dict({key: value})
  with pytest.raises(ValueError, match="expected") as refusal:
    checks.check_sft(config)
  assert key in str(refusal.value) and repr(value) in str(refusal.value)


def test_a_half_set_rollout_mesh_is_named():
  config = azr.get_config("tiny")
  config.rollout.mesh.tensor = 4
  with pytest.raises(ValueError, match="config.rollout.mesh="):
    checks.check_train(config)


def test_an_unknown_key_is_named():
  config = azr.get_config("tiny")
  config.azr.batchsize = 3
  with pytest.raises(ValueError, match="azr.batchsize"):
    checks.check_train(config)


def test_paper_values():
  config = azr.get_config("qwen2.5-7b")
  assert config.azr.batch_size == 64
  assert config.azr.references == 6
  assert config.azr.learnability_samples == 8
  assert config.azr.seed_factor == 4
  assert config.azr.max_programs == 16384
  assert config.optimizer.learning_rate == 1e-6
  assert config.optimizer.grad_clip == 1.0
  assert config.learner.entropy_coef == 0.001
  assert config.train.steps == 500
  assert config.rollout.prompt_buckets[-1] == 6144
  assert config.rollout.max_tokens == 8096


@pytest.mark.parametrize(
  "change, message",
  [
    ({"intrinsic": ("distance",)}, "expected one for each of"),
    (
      {
        "intrinsic": ("distance",),
        "intrinsic_weights": (1.0,),
        "measure_programs": False,
      },
      "expected azr.measure_programs",
    ),
    ({"strip": ("names",)}, r"strip=\('names',\): expected \(\) or a choice"),
    ({"evict": "oldest"}, "evict='oldest': expected"),
  ],
)
def test_what_does_not_go_together_in_azr(change, message):
  config = azr.get_config("tiny")
  config.azr.update(change)
  with pytest.raises(ValueError, match=message):
    checks.check_train(config)
