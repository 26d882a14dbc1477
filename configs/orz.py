"""Open-Reasoner-Zero (ORZ, arXiv 2503.24290): PPO with a critic.

  python -m azr_jax.train --config=configs/orz.py:tiny --workdir=RUN

| variant | model | problems |
| --- | --- | --- |
| `tiny` | embedded, 1.7M parameters; 5 min, one core | reasoning-gym sums |
| `smollm2-135m` | from `configs/sft.py:orz_smollm2-135m` | short sums |
| `qwen2.5-0.5b`, `-1.5b`, `-7b`, `-32b` | Qwen2.5 base | ORZ's 129k |
| `32b_anneal` | policy and critic of a `32b` run | its hard ones |
| `distill_14b` | DeepSeek-R1-Distill-Qwen-14B | ORZ's 13k hard ones |

The values are the paper's, or those of its published code where the paper
states none. The critic's head follows the published code in every variant;
`--config.critic.head_init=paper` selects the paper's. `VARIANT+published_code`
follows that code where it differs from the paper; the code produced the paper's
numbers. `VARIANT+ours` has our changes. docs/papers.md lists both. `+FIGURE`
at the end selects an ablation of `FIGURES`: `7b+published_code+figure3_math`.

`32b` is short for `qwen2.5-32b`, and so on. `--config.learner.estimator=grpo`
trains with GRPO instead of PPO; `grpo_mean` does not divide by the standard
deviation, like the published code. Annealing starts from a run and its hard
problems:

  python -m azr_jax.select_problems --run=RUN --highest=0.0624 --out=HARD.jsonl
  python -m azr_jax.train --config=configs/orz.py:32b_anneal \\
      --config.train.init_from_run=RUN --config.orz.data="('HARD.jsonl',)" \\
      --config.orz.counts="(0,)" --workdir=DIR
"""

import ml_collections

from azr_jax.config import presets, qwen3
from azr_jax.executor.settings import profile
from azr_jax.trainer import settings

SIZES = ("0.5b", "1.5b", "7b", "32b")
VARIANTS = (
  "tiny",
  "smollm2-135m",
  *(f"qwen2.5-{size}" for size in SIZES),
  *SIZES,
  "32b_anneal",
  "distill_14b",
  *qwen3.VARIANTS,
)
# Chips per copy of the weights for sampling. Weights sharded over all chips, as
# the state is, would be gathered again for each token.
SAMPLING_CHIPS = {"0.5b": 1, "1.5b": 1, "7b": 4, "14b": 4, "32b": 8}
# The model that `configs/sft.py:orz_smollm2-135m` writes to `orz_sft`.
SFT_START = "orz_sft/model"
# Leaves out single-digit sums, most of which are in the training set.
_HELD_OUT_SUMS = (
  "gym:chain_sum(min_terms=3, max_terms=4, min_digits=2, max_digits=2, seed=9)"
)
# The published code differs from the paper in these keys.
PUBLISHED_CODE = {
  "learner.aggregation": "row_mean",
  "critic.value_clip": 0.2,
  "optimizer.grad_clip": 1.0,
  "critic.optimizer.grad_clip": 1.0,
  "orz.truncated_grade": "incorrect",
  "evaluation.mathematics.truncated_grade": "incorrect",
}
# Our change: a response that is truncated after its answer earns nothing, so a
# model is never rewarded for text after its answer.
OURS = {
  "orz.truncated_grade": "incorrect",
  "evaluation.mathematics.truncated_grade": "incorrect",
}
# Ablations of figures 3, 7 and 8. The paper states no coefficient of the KL.
FIGURES = {
  "figure3_lambda": {"critic.gae_lambda": 0.95},
  "figure3_kl_loss": {"learner.kl_coef": 0.001},
  "figure3_kl_reward": {
    "learner.kl_coef": 0.001,
    "learner.kl_in": "reward",
    "learner.kl_estimator": "k1",
  },
  "figure3_math": {  # 7.5k problems, against 57k of ORZ
    "orz.data": ("hf:DigitalLearningGmbH/MATH-lighteval",),
    "orz.counts": (0,),
  },
  "figure3_57k": {
    "orz.data": ("hf:Open-Reasoner-Zero/orz_math_57k_collection",),
    "orz.counts": (0,),
  },
  "figure7_grpo": {"learner.estimator": "grpo_mean"},  # without the deviation
  "figure8_english": {"orz.language": "english"},
}


def get_config(variant: str = "tiny") -> ml_collections.ConfigDict:
  """Returns the configuration of VARIANT[+PRESET][+FIGURE]."""
  variant, figure = presets.split_figure(variant, FIGURES)
  variant, preset = presets.split(variant, VARIANTS, FIGURES)
  c = settings.train_config("orz")
  _objective(c)
  if variant in qwen3.VARIANTS:
    _paper(c)
    qwen3.apply(c, variant, {"orz.prompts": 16, "orz.group_size": 16})
  elif variant == "tiny":
    _tiny(c)
  elif variant == "smollm2-135m":
    _smollm2(c)
  else:
    _full(c, variant)
  presets.apply(c, preset, PUBLISHED_CODE, OURS)
  c.update_from_flattened_dict(dict(figure))
  return c


def _full(c: ml_collections.ConfigDict, variant: str) -> None:
  """Sets the model and stage of a variant at the paper's sizes."""
  _paper(c)
  if variant == "distill_14b":
    size = "14b"
    c.model.source = "hf:deepseek-ai/DeepSeek-R1-Distill-Qwen-14B"
    c.orz.data = ("hf:Open-Reasoner-Zero/orz_math_13k_collection_hard",)
    c.orz.counts = (0,)
    c.train.steps = 300
  else:
    size = variant.removeprefix("qwen2.5-").removesuffix("_anneal")
    c.model.source = f"hf:Qwen/Qwen2.5-{size.upper()}"
    if size == "7b":
      c.learner.row_length = 16_384  # published code
    if size == "32b":
      _large(c)
  c.rollout.mesh.tensor = SAMPLING_CHIPS[size]
  if variant == "32b_anneal":
    _anneal(c)


def _objective(c: ml_collections.ConfigDict) -> None:
  """Sets PPO with GAE(1, 1), no entropy bonus and no KL (section 2)."""
  c.learner.estimator = "gae"
  c.learner.aggregation = "sequence_sum"  # eq. 2 and 3
  c.learner.normalize_advantages = True
  c.learner.entropy_coef = 0.0
  c.learner.kl_coef = 0.0
  c.critic.gamma = 1.0
  c.critic.gae_lambda = 1.0
  c.evaluation.temperature = 1.0  # as in training
  for optimizer in (c.optimizer, c.critic.optimizer):
    optimizer.b2 = 0.95
    optimizer.weight_decay = 0.0
    optimizer.warmup_steps = 50  # paper: 50 updates
    # The paper states no clip. The published code clips at 1.0, but there the
    # gradient is of a mean over tokens. For a sum over thousands of tokens, 1.0
    # would clip every step.
    optimizer.grad_clip = 0.0


def _paper(c: ml_collections.ConfigDict) -> None:
  """Sets the values of appendix B, or else of the published code."""
  c.orz.prompts = 128  # appendix B
  c.orz.group_size = 64  # appendix B
  c.model.dtype = "bfloat16"
  c.model.remat = "full"
  c.rollout.mesh.data = -1
  c.rollout.mesh.fsdp = 1
  # Pages, not slots, limit how many sequences fit.
  c.rollout.slots = 1024
  c.rollout.cache_gib = 16.0
  c.rollout.prompt_buckets = (256, 512, 1024, 2048)  # published code: 2048
  c.rollout.max_tokens = 8000  # published code: 8000
  c.rollout.temperature = 1.0  # appendix B
  c.rollout.decode_chunk = 128
  c.rollout.page_size = 512
  c.rollout.stop_strings = ("User:", "Human:", "Assistant:", "</answer>")
  c.learner.row_length = 10_048  # published code
  c.learner.max_micro_batches = 256
  c.learner.epochs = 1  # algorithm 1: the policy takes one step
  c.critic.num_minibatches = 12  # paper: 12
  c.optimizer.learning_rate = 1e-6  # appendix B
  c.critic.optimizer.learning_rate = 5e-6  # appendix B
  c.executor.workers = 16
  c.executor.update(profile("mathematics"))
  c.train.steps = 1000  # about one epoch of 129k problems
  c.train.save_every = 50
  # Off until evaluation.every is set. GPQA needs a file in evaluation.data.
  c.evaluation.benchmarks = "aime24,aime25,math500,gpqa"
  c.evaluation.limit = 0  # all items
  c.evaluation.samples = 16
  c.evaluation.mathematics.answer = "reward"


def _large(c: ml_collections.ConfigDict) -> None:
  """Sets steps, and a sampler that fits next to the state on 16 v5p chips."""
  c.train.steps = 1100  # paper: hard problems are those of 1,100 steps
  c.rollout.slots = 128
  c.rollout.cache_gib = 0.0


def _anneal(c: ml_collections.ConfigDict) -> None:
  """Sets a learning rate that falls linearly to 3e-7 (appendix B).

  The stage keeps the Adam moments of the run it starts from. Both learning
  rates rise over about the first four iterations, in which the critic takes its
  50 steps.
  """
  c.train.keep_moments = True
  c.optimizer.warmup_steps = 5
  c.optimizer.decay = "linear"
  c.optimizer.decay_steps = 100
  c.optimizer.final_learning_rate = 3e-7
  c.train.steps = 100


def _tiny(c: ml_collections.ConfigDict) -> None:
  """Sets the sizes of the model that `configs/sft.py:orz_tiny` trains."""
  c.model.source = "embedded:orz-tiny"
  # Three quarters of the problems resemble the warm start's. The others have
  # longer numbers, so that some problems stay unsolved.
  c.orz.data = (
    "gym:chain_sum(min_terms=3, max_terms=4, max_digits=2)",
    "gym:chain_sum(min_terms=3, max_terms=4, min_digits=4)",
  )
  c.orz.counts = (9000, 3000)
  c.orz.data_seed = 1  # The warm start has 0.
  c.orz.prompts = 24
  c.orz.group_size = 8
  c.orz.prompt_format = "compact"
  c.orz.grader = "rules"
  c.rollout.slots = 192  # all responses at a time
  c.rollout.prompt_buckets = (24,)
  c.rollout.max_tokens = 64
  c.rollout.decode_chunk = 16
  c.learner.row_length = 176  # 2 x (24 + 64)
  c.learner.micro_rows = 2
  c.learner.max_micro_batches = 64
  c.learner.chunk_tokens = 352  # a whole micro-batch
  c.optimizer.grad_clip = c.critic.optimizer.grad_clip = 1.0  # short responses
  c.optimizer.learning_rate = 3e-4
  c.optimizer.warmup_steps = 5
  c.critic.optimizer.learning_rate = 1e-3
  c.critic.optimizer.warmup_steps = 4
  c.executor.update(profile("mathematics"))
  c.evaluation.every = 20
  c.evaluation.benchmarks = "problems"
  c.evaluation.data = _HELD_OUT_SUMS
  c.evaluation.limit = 100
  c.evaluation.prompt_format = "compact"
  c.evaluation.mathematics.grader = "rules"
  c.train.steps = 60
  c.train.save_every = 20


def _smollm2(c: ml_collections.ConfigDict) -> None:
  """Sets sums of two and three numbers, and steps of one or two minutes."""
  c.model.source = SFT_START
  c.model.preset = "smollm2-135m"
  c.orz.data = ("gym:chain_sum(min_terms=2, max_terms=3, max_digits=2)",)
  c.orz.counts = (4000,)
  c.orz.data_seed = 1  # The warm start has 0.
  c.orz.prompts = 8
  c.orz.group_size = 8
  c.orz.prompt_format = "compact"  # SFT used this format.
  c.orz.grader = "rules"
  c.rollout.slots = 64  # prompts x group_size
  c.rollout.prompt_buckets = (40,)
  c.rollout.max_tokens = 64
  c.rollout.decode_chunk = 16
  c.learner.row_length = 208  # two sequences
  c.learner.micro_rows = 2  # A run already takes 7.6 GiB.
  c.learner.max_micro_batches = 64
  c.learner.chunk_tokens = 416  # Each token has 49k logits.
  c.optimizer.grad_clip = c.critic.optimizer.grad_clip = 1.0  # short responses
  c.optimizer.learning_rate = 3e-5
  c.optimizer.warmup_steps = 5  # of 24
  c.critic.optimizer.learning_rate = 1e-4
  c.critic.optimizer.warmup_steps = 4
  c.executor.update(profile("mathematics"))
  # Off until evaluation.every is set.
  c.evaluation.every = 0
  c.evaluation.benchmarks = "problems"
  c.evaluation.data = _HELD_OUT_SUMS
  c.evaluation.limit = 100
  c.evaluation.prompt_format = "compact"
  c.evaluation.mathematics.grader = "rules"
  c.train.steps = 24
  c.train.save_every = 4  # Steps are long.
