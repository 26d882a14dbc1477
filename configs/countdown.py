"""Countdown: RLOO with several ways of choosing prompts (docs/papers.md).

  python -m azr_jax.train --config=configs/countdown.py:tiny \\
      --workdir=RUN

| variant | prompts |
| --- | --- |
| `tiny` | uniform; 9 minutes on a CPU core |
| `tiny_static` | from easy to hard on a fixed schedule (table 1) |
| `tiny_adaptive` | one bucket per step, near a target pass rate (eq. 2-4) |
| `tiny_replay` | `tiny_adaptive` with replay of partly solved puzzles (eq. 5) |
| `tiny_conservative_replay` | the same, with less replay, starting later |
| `tiny_random_mix` | half from a pool of random puzzles |
| `tiny_lm_mix` | half from a pool proposed by the warm-started model |
| `tiny_curriculum_mix` | the same, with fixed bucket weights |
| `tiny_closed_loop` | `tiny_adaptive`, with puzzles that the policy proposes |

`smollm2-135m` trains SmolLM2-135M-Instruct on the easy third of three-number
puzzles. It starts from the model that `configs/sft.py:countdown_smollm2-135m`
writes to `countdown_smollm2_sft`.

`qwen3-8b_lora_h100` and so on are in `azr_jax/config/qwen3.py`.

`qwen2.5-0.5b` and its variants (`qwen2.5-0.5b_static`, ...) use the constants
of section 4.1. Variants that end with `mix` use the constants of section 4.2;
their baseline is `qwen2.5-0.5b_no_mix`, uniform over real puzzles. Section 4.1
starts from a public model. Section 4.2, and `VARIANT+ours`, start from the
model that the first command below writes to the working directory; it is
trained on the prompts of this package. Mixes also read the pools of the other
commands:

  python -m azr_jax.sft --config=configs/sft.py:countdown_qwen2.5-0.5b \\
      --workdir=countdown_sft
  python -m azr_jax.propose --random --out=countdown_random.jsonl
  python -m azr_jax.propose --config=configs/propose.py --model=SPEC \\
      --out=countdown_proposed.jsonl
"""

import ml_collections

from azr_jax.config import presets, qwen3
from azr_jax.trainer import settings

SUFFIXES = (
  "",
  "_static",
  "_adaptive",
  "_replay",
  "_conservative_replay",
  "_random_mix",
  "_lm_mix",
  "_curriculum_mix",
  "_closed_loop",
)
# Models that have a variant with each suffix.
_COMPARED = ("tiny", "qwen2.5-0.5b")
MODELS = (*_COMPARED, "smollm2-135m")
# The baseline of the mixes. Only at the paper's size do its constants differ.
NO_MIX = "_no_mix"
VARIANTS = (
  *(model + suffix for model in _COMPARED for suffix in SUFFIXES),
  "qwen2.5-0.5b" + NO_MIX,
  "smollm2-135m",
  *qwen3.VARIANTS,
)
# The published code differs from the paper in these keys.
PUBLISHED_CODE = {
  "countdown.verifier": "published_code",  # 2**3 is an answer
  "learner.kl_estimator": "full",
}
# The output of the first command above.
SFT_START = "countdown_sft/model"
# The model that `configs/sft.py:countdown_smollm2-135m` writes.
SMOLLM2_START = "countdown_smollm2_sft/model"
# `ours` starts from a model that knows our prompts. It trains the tiny model at
# the evaluation temperature, and trains it and SmolLM2 without a KL penalty, so
# that no reference model has to score the batch.
OURS = {
  "tiny": {"rollout.temperature": 0.6, "learner.kl_coef": 0.0},
  "qwen2.5-0.5b": {"model.source": SFT_START},
  "smollm2-135m": {"learner.kl_coef": 0.0},
}


def get_config(variant: str = "tiny") -> ml_collections.ConfigDict:
  """Returns the configuration of VARIANT or VARIANT+PRESET."""
  variant, preset = presets.split(variant, VARIANTS)
  if variant in qwen3.VARIANTS:
    return _lora(variant, preset)
  model = next(m for m in MODELS if variant.startswith(m))
  kind = variant.removeprefix(model)
  c = settings.train_config("countdown")
  _objective(c)
  if model == "tiny":
    _tiny(c)
  elif model == "smollm2-135m":
    _smollm2(c)
  else:
    _paper(c)
    if kind.endswith("mix"):
      _paper_mixing(c)
  _choose_prompts(c, kind)
  presets.apply(c, preset, PUBLISHED_CODE, OURS[model])
  return c


def _lora(variant: str, preset: str) -> ml_collections.ConfigDict:
  """Returns the configuration of a variant of `qwen3.VARIANTS`."""
  c = settings.train_config("countdown")
  _objective(c)
  _paper(c)
  c.model.preset = ""
  qwen3.apply(c, variant, {"countdown.prompts": 32})
  presets.apply(c, preset, PUBLISHED_CODE, {})
  return c


def _objective(c: ml_collections.ConfigDict) -> None:
  """Sets RLOO with sequence weights."""
  c.learner.estimator = "rloo"  # eq. 1
  c.learner.policy_loss = "sequence_weighted"  # course project
  c.learner.aggregation = "sequence_sum"  # course project
  c.learner.kl_coef = 1e-3  # section 4.1
  c.learner.entropy_coef = 1e-3  # section 4.1
  c.optimizer.weight_decay = 1e-4  # section 4.1
  c.optimizer.grad_clip = 0.0  # section 4.1: no clipping
  # Off until evaluation.every is set. Uses top-p and top-k of training.
  c.evaluation.benchmarks = "countdown"
  c.evaluation.samples = 16  # section 4.1
  c.evaluation.temperature = 0.6  # section 4.1


def _paper(c: ml_collections.ConfigDict) -> None:
  """Sets the values of section 4.1, or else of the paper's course project."""
  c.model.source = "hf:asingh15/qwen-sft-countdown-defaultproj"
  c.model.preset = "qwen2.5-0.5b"
  c.model.dtype = "bfloat16"
  c.model.remat = "dots"
  c.countdown.prompts = 128  # section 4.1
  c.countdown.group_size = 8  # section 4.1
  # Each device holds a copy of the weights to sample with. Weights sharded like
  # the state would be gathered again for each token.
  c.rollout.mesh.data = -1
  c.rollout.mesh.fsdp = 1
  c.rollout.mesh.tensor = 1
  c.rollout.slots = 1024
  c.rollout.cache_gib = 16.0
  c.rollout.prefill_tokens = 8192  # With less, slots wait for prompts.
  c.rollout.prompt_buckets = (256,)
  c.rollout.max_tokens = 1024
  c.rollout.temperature = 1.0  # section 4.1
  c.rollout.decode_chunk = 64
  c.learner.row_length = 1280  # 256 + 1,024
  c.learner.micro_rows = 16
  c.learner.max_micro_batches = 64
  c.optimizer.learning_rate = 1e-5  # section 4.1
  c.train.steps = 100  # section 4.1


def _paper_mixing(c: ml_collections.ConfigDict) -> None:
  """Sets the values of section 4.2."""
  c.model.source = SFT_START
  c.countdown.prompts = 16  # paper: 4, accumulated 4 times
  c.countdown.group_size = 16
  c.learner.kl_coef = 5e-3
  c.optimizer.learning_rate = 5e-6


def _tiny(c: ml_collections.ConfigDict) -> None:
  """Sets the sizes of the model that `configs/sft.py:countdown_tiny` trains."""
  c.model.source = "embedded:countdown-tiny"
  c.countdown.prompts = 32
  c.countdown.prompt_format = "compact"
  c.countdown.count = 20_000
  c.rollout.slots = 256  # all 32 x 8 responses of a step
  c.rollout.prompt_buckets = (40,)
  c.rollout.max_tokens = 160
  c.rollout.decode_chunk = 16
  c.learner.row_length = 200  # 40 + 160
  c.learner.micro_rows = 16
  c.learner.chunk_tokens = 3200  # The logits of a whole micro-batch fit.
  c.optimizer.learning_rate = 1.5e-4
  c.optimizer.b2 = 0.98  # There are few updates.
  c.train.steps = 40
  c.train.save_every = 20
  c.evaluation.prompt_format = "compact"


def _smollm2(c: ml_collections.ConfigDict) -> None:
  """Sets easy three-number puzzles, and steps of about two minutes."""
  c.model.source = SMOLLM2_START
  c.model.preset = "smollm2-135m"
  c.countdown.prompts = 16
  c.countdown.prompt_format = "compact"  # SFT used this format.
  c.countdown.count = 20_000
  c.countdown.sizes = (3,)
  # After SFT it solves one in six of these, and one in seventy hard ones.
  c.countdown.bucket_weights = (1.0, 0.0, 0.0)
  c.rollout.slots = 128
  c.rollout.prompt_buckets = (24,)
  c.rollout.max_tokens = 72
  c.rollout.decode_chunk = 8
  c.learner.drop_equal_groups = True  # Most groups have no correct response.
  c.learner.row_length = 192  # two sequences
  c.learner.micro_rows = 2  # A run already takes 7.9 GiB.
  c.learner.max_micro_batches = 64
  c.learner.chunk_tokens = 384  # Each token has 49k logits.
  c.optimizer.learning_rate = 3e-5
  c.optimizer.b2 = 0.98  # There are few updates.
  c.train.steps = 12
  c.train.save_every = 3  # Steps are long.
  c.evaluation.prompt_format = "compact"


def _choose_prompts(c: ml_collections.ConfigDict, kind: str) -> None:
  """Sets the prompt distribution, the only difference between variants."""
  if kind == "_static":
    c.countdown.curriculum = "static"
  if "replay" in kind or kind in ("_adaptive", "_closed_loop"):
    c.countdown.curriculum = "adaptive"
  if kind == "_replay":
    c.countdown.replay.fraction = 0.25
  if kind == "_conservative_replay":
    c.countdown.replay.fraction = 0.10
    c.countdown.replay.warmup_steps = 30
    c.countdown.replay.min_pass_rate = 0.20
    c.countdown.replay.max_pass_rate = 0.80
    c.countdown.replay.max_replays = 3
  if kind == "_random_mix":
    c.countdown.mix.puzzles = "countdown_random.jsonl"
  if kind in ("_lm_mix", "_curriculum_mix"):
    c.countdown.mix.puzzles = "countdown_proposed.jsonl"
  if kind == "_curriculum_mix":
    c.countdown.mix.bucket_weights = (0.10, 0.40, 0.50)
  if kind == "_closed_loop":
    c.countdown.proposals = c.countdown.prompts
