"""R1-Code-Interpreter (R1-CI, arXiv 2505.21668): answers that run code.

  python -m azr_jax.train --config=configs/code_interpreter.py:tiny \\
      --workdir=RUN

| variant | model | questions |
| --- | --- | --- |
| `tiny` | embedded, 1.7M parameters; 4 minutes | sums and words |
| `smollm2-135m` | SmolLM2-135M-Instruct after SFT; half an hour | four sets |
| `qwen2.5-3b`, `-7b`, `-14b` | Qwen2.5 Instruct after SFT | 107 tasks |

`smollm2-135m` starts from the model that `configs/sft.py:code_smollm2-135m`
writes to `code_smollm2_sft`. The Qwen2.5 variants need the output of these
commands in the working directory:

  python -m azr_jax.data.build_questions --out=questions
  python -m azr_jax.trajectories --config=configs/trajectories.py \\
      --model=hf:Qwen/Qwen2.5-7B-Instruct-1M --workdir=trajectories
  python -m azr_jax.sft --config=configs/sft.py:code_qwen2.5-7b \\
      --workdir=code_sft_qwen2.5-7b
  python -m azr_jax.potential --config=configs/potential.py \\
      --model=code_sft_qwen2.5-7b/model --workdir=potential

`VARIANT+published_code` uses the advantages, means, decay and warm-up of the
code of Search-R1, which the paper's code builds on (docs/papers.md lists them).
It takes three optimizer steps per batch of 640 conversations, as Search-R1 does
with its mini-batches of 256; the paper does not state theirs. `VARIANT+ours`
equals the paper's variant. `+FIGURE` at the end selects an ablation of
`FIGURES`, as in `qwen2.5-14b+figure13`. With
`code_interpreter.curriculum = "none"`, no variant needs pass rates. The Qwen2.5
variants use the model's own chat template.
"""

import ml_collections

from azr_jax.config import presets, qwen3
from azr_jax.executor.settings import profile
from azr_jax.trainer import settings

SIZES = ("3b", "7b", "14b")
VARIANTS = (
  "tiny",
  "smollm2-135m",
  *(f"qwen2.5-{size}" for size in SIZES),
  *qwen3.VARIANTS,
)
# Chips per copy of the weights for sampling. Weights sharded over all chips, as
# the state is, would be gathered again for each token.
SAMPLING_CHIPS = {"qwen2.5-3b": 1, "qwen2.5-7b": 4, "qwen2.5-14b": 4}
# Search-R1's code differs from the paper in these keys.
PUBLISHED_CODE = {
  "learner.estimator": "grpo_sample_std",  # verl divides by G - 1.
  "learner.aggregation": "token_mean",
  "learner.regularizer_aggregation": "token_mean",
  "optimizer.decay_vectors": True,
  "learner.minibatches": 3,  # the paper's 640 conversations by 256
}
# The models that SFT starts from.
UNTRAINED = {
  "qwen2.5-3b": "hf:Qwen/Qwen2.5-3B-Instruct",
  "qwen2.5-7b": "hf:Qwen/Qwen2.5-7B-Instruct-1M",
  "qwen2.5-14b": "hf:Qwen/Qwen2.5-14B-Instruct-1M",
}
WARMUP_FRACTION = 0.285  # Search-R1: of the steps
OURS: dict[str, object] = {}
# What figures 13 and 14 train on and test on: `build_questions --held_out=bbh`.
_WITHOUT_BBH = {
  "code_interpreter.questions": ("split:questions_without_bbh/train",),
  "evaluation.data": "split:questions_without_bbh/test",
}
# Ablations of the paper's figures, which are of the 14B model.
FIGURES = {
  # (c), one task. (d) varies code_interpreter.num_tasks.
  "figure3_game24": {
    "code_interpreter.tasks": ("symbench/game24",),
    "code_interpreter.curriculum": "none",
  },
  "figure3_tasks": {
    "code_interpreter.num_tasks": 20,
    "code_interpreter.curriculum": "none",
  },
  # A second round: pass rates of the trained model, which trains on.
  "figure10": {
    "train.init_from_run": "code_interpreter_run",
    "code_interpreter.pass_rates": "potential_round_2/pass_rates.jsonl",
  },
  "figure13": {
    **_WITHOUT_BBH,
    "code_interpreter.pass_rates": "potential_without_bbh/pass_rates.jsonl",
    "train.steps": 300,  # paper: two stages
  },
  **{
    f"figure14_group{group}": {
      **_WITHOUT_BBH,
      "code_interpreter.pass_rates": "potential_without_bbh/pass_rates.jsonl",
      "code_interpreter.curriculum": "none",
      "code_interpreter.only_group": group,
    }
    for group in (1, 2, 3)
  },
  # From the model of `UNTRAINED`, with its own pass rates.
  "figure15_cold": {
    "code_interpreter.pass_rates": "potential_cold/pass_rates.jsonl",
  },
}
# Six temperatures, because small models have three agents instead of four.
SMALL_TEMPERATURES = (0.3, 0.5, 0.7, 0.8, 0.9, 1.0)
TINY_QUESTIONS = (
  "gym:products(min_terms=2, max_terms=2, min_digits=2, max_digits=4)",
  "gym:chain_sum(min_terms=3, max_terms=4, min_digits=2, max_digits=4)",
  "gym:gcd",
  "gym:lcm",
  "gym:count_bits",
  "gym:spell_backward",
)
# The model that `configs/sft.py:code_smollm2-135m` writes.
SMOLLM2_START = "code_smollm2_sft/model"
# SFT covers all six sets. The two that are left out show transfer.
SMOLLM2_QUESTIONS = (*TINY_QUESTIONS[:3], TINY_QUESTIONS[4])


def get_config(variant: str = "tiny") -> ml_collections.ConfigDict:
  """Returns the configuration of VARIANT[+PRESET][+FIGURE]."""
  variant, figure = presets.split_figure(variant, FIGURES)
  variant, preset = presets.split(variant, VARIANTS, FIGURES)
  c = settings.train_config("code_interpreter")
  _objective(c)
  if variant in qwen3.VARIANTS:
    _paper(c)
    qwen3.apply(c, variant, {"code_interpreter.prompts": 32})
  elif variant == "tiny":
    _tiny(c)
  elif variant == "smollm2-135m":
    _smollm2(c)
  else:
    _paper(c)
    is_cold = figure is FIGURES["figure15_cold"]
    start = UNTRAINED[variant] if is_cold else f"code_sft_{variant}/model"
    c.model.source = start
    c.model.preset = variant
    c.rollout.mesh.tensor = SAMPLING_CHIPS[variant]
  c.update_from_flattened_dict(dict(figure))
  # The optimizer counts its own steps, of which a batch has several.
  updates = c.train.steps * PUBLISHED_CODE["learner.minibatches"]
  warmup = {"optimizer.warmup_steps": round(WARMUP_FRACTION * updates)}
  presets.apply(c, preset, PUBLISHED_CODE | warmup, OURS)
  return c


def _objective(c: ml_collections.ConfigDict) -> None:
  """Sets GRPO with a mean over conversations (section 4.1)."""
  c.rollout.stop_strings = ()  # A response ends with its code block.
  c.learner.estimator = "grpo"
  c.learner.aggregation = "sequence_mean"
  c.learner.regularizer_aggregation = "sequence_mean"
  c.evaluation.benchmarks = "questions"
  c.evaluation.temperature = 0.6  # paper: 0.6


def _paper(c: ml_collections.ConfigDict) -> None:
  """Sets the values of sections 3 and 4.1, or else of Search-R1."""
  c.code_interpreter.questions = ("split:train",)
  c.code_interpreter.prompts = 128  # paper: 128
  c.code_interpreter.group_size = 5  # paper: 5
  c.code_interpreter.stage_steps = 150  # paper: 150
  c.code_interpreter.prompt_format = "chat"
  c.code_interpreter.tool.max_calls = 8  # paper: 8
  c.model.dtype = "bfloat16"
  c.rollout.mesh.data = -1
  c.rollout.mesh.fsdp = 1
  # Pages, not slots, limit how many conversations fit.
  c.rollout.slots = 1024
  c.rollout.cache_gib = 16.0
  c.rollout.prompt_buckets = (512, 1024, 2048, 4096)  # Search-R1: 4096
  c.rollout.max_tokens = 6144  # tokens of a conversation
  c.rollout.temperature = 1.0  # paper: 1.0
  c.rollout.decode_chunk = 64
  c.rollout.page_size = 512
  c.rollout.extend_chunk = 128
  c.learner.kl_coef = 0.001  # paper: 0.001
  c.learner.entropy_coef = 0.001  # Search-R1: 0.001
  c.learner.row_length = 10_240  # 4,096 + 6,144
  c.learner.max_micro_batches = 64
  c.optimizer.learning_rate = 1e-6  # paper: 1e-6
  c.executor.workers = 64
  c.executor.update(profile("code_interpreter"))
  c.train.steps = 600  # paper: four stages of 150
  c.train.save_every = 25
  # Off until evaluation.every is set: it takes 3,700 conversations.
  c.evaluation.data = "split:test"
  c.evaluation.limit = 0  # all items
  c.evaluation.prompt_format = "chat"


def _small(c: ml_collections.ConfigDict) -> None:
  """Sets short conversations about embedded questions, for one CPU core."""
  c.code_interpreter.count = 200
  c.code_interpreter.data_seed = 1  # The warm start has 0.
  c.code_interpreter.prompts = 16
  c.code_interpreter.group_size = 8
  c.code_interpreter.prompt_format = "compact"  # The warm start used it.
  c.code_interpreter.tool.max_output_tokens = 40
  c.code_interpreter.curriculum = "none"
  c.code_interpreter.grouping = "quantiles"
  c.code_interpreter.stage_steps = 10
  # The warm start has no prompts of `steer`.
  c.code_interpreter.pass_rate_agents = ("text", "code", "code_agent")
  c.code_interpreter.pass_rate_temperatures = SMALL_TEMPERATURES
  c.rollout.slots = 128  # all responses at a time
  c.rollout.prompt_buckets = (48,)
  c.rollout.max_tokens = 144
  c.rollout.decode_chunk = 8
  c.rollout.page_size = 64
  c.rollout.extend_chunk = 16
  c.learner.kl_coef = 0.001  # paper: 0.001; `learner/kl` shows the divergence
  c.learner.row_length = 192  # 48 + 144
  c.optimizer.b2 = 0.98  # There are few updates.
  c.executor.update(profile("code_interpreter_tiny"))
  c.evaluation.data = "+".join(TINY_QUESTIONS)
  c.evaluation.prompt_format = "compact"


def _tiny(c: ml_collections.ConfigDict) -> None:
  """Sets the sizes of the model that `configs/sft.py:code_tiny` trains."""
  _small(c)
  c.model.source = "embedded:code-tiny"
  c.code_interpreter.questions = TINY_QUESTIONS
  c.learner.micro_rows = 16
  c.learner.max_micro_batches = 8
  c.learner.chunk_tokens = 3072  # a whole micro-batch
  c.optimizer.learning_rate = 1e-4
  c.train.steps = 40


def _smollm2(c: ml_collections.ConfigDict) -> None:
  """Sets four of the sets that SFT covers; the evaluation has all six."""
  _small(c)
  c.model.source = SMOLLM2_START
  c.model.preset = "smollm2-135m"
  c.code_interpreter.questions = SMOLLM2_QUESTIONS
  c.learner.micro_rows = 2  # A run already takes 7.2 GiB.
  c.learner.max_micro_batches = 64
  c.learner.chunk_tokens = 384  # Each token has 49k logits.
  c.optimizer.learning_rate = 3e-5
  c.train.steps = 6
  c.train.save_every = 3  # Steps are long.
