"""Evaluation of a model on benchmarks.

  python -m azr_jax.evaluate --config=configs/evaluate.py \\
      --model=embedded:azr-tiny --benchmark=programs_heldout --workdir=DIR

| variant | sampling |
| --- | --- |
| `greedy` | one greedy answer each, for `programs_heldout` |
| `countdown_tiny` | 16 answers as in Countdown, section 4.1; compact prompts |
| `countdown` | the same, with full prompts and 1,024 tokens |
| `countdown_once` | one answer at temperature 1, as in training |
| `problems_tiny` | one answer each at temperature 1, as `configs/orz.py:tiny` |
| `full` | public benchmarks, greedy, in the prompt format of training |
| `chat` | `full` with a chat template |
| `plain` | `full` with a prompt format for base models |
| `average16` | ORZ: 16 answers, with the prompts and grading of its reward |
| `questions_tiny` | the benchmark `questions`, by an agent of the tiny model |
| `questions` | the same for instruction-tuned models (R1-CI) |
| `questions_full` | the same for models without a chat template |
| `questions_small` | for models too small to follow instructions |

All four agents, and R1-CI's out-of-distribution sets:

  python -m azr_jax.evaluate --config=configs/evaluate.py:questions \\
      --config.evaluate.agents="('text', 'code', 'steer', 'code_agent')" \\
      --model=MODEL --benchmark=questions,gpqa,aime24,aime25 \\
      --data=questions=split:seen+split:test,gpqa=FILE --workdir=DIR
"""

import ml_collections

from azr_jax.config import overrides, presets
from azr_jax.executor.settings import profile
from azr_jax.trainer import settings

VARIANTS = (
  "greedy",
  "countdown_tiny",
  "countdown",
  "countdown_once",
  "problems_tiny",
  "full",
  "chat",
  "plain",
  "average16",
  "questions_tiny",
  "questions",
  "questions_full",
  "questions_small",
)
# ORZ's published code grades truncated responses differently from its paper, as
# does the preset `ours` of configs/orz.py.
PUBLISHED_CODE = {"evaluate.mathematics.truncated_grade": "incorrect"}
OURS = PUBLISHED_CODE


def get_config(variant: str = "greedy") -> ml_collections.ConfigDict:
  """Returns the evaluation configuration of a variant of `VARIANTS`."""
  variant, preset = presets.split(variant, VARIANTS)
  c = overrides.to_config(settings.EvaluateSettings())
  one = {
    "greedy": _greedy,
    "countdown_tiny": _countdown_tiny,
    "countdown": _countdown,
    "countdown_once": _countdown_once,
    "problems_tiny": _problems_tiny,
    "average16": _average16,
    "questions_tiny": _questions_tiny,
    "questions_small": _questions_small,
  }
  if variant in one:
    one[variant](c)
  elif variant.startswith("questions"):
    _questions(c, "full" if variant == "questions_full" else "chat")
  else:
    _public(c, variant)
  presets.apply(c, preset, PUBLISHED_CODE, OURS)
  return c


def _greedy(c: ml_collections.ConfigDict) -> None:
  c.rollout.slots = 96
  c.rollout.temperature = 0.0  # greedy


def _countdown_tiny(c: ml_collections.ConfigDict) -> None:
  c.evaluate.samples = 16  # paper: 16
  c.rollout.slots = 256
  c.rollout.temperature = 0.6  # paper: 0.6
  c.rollout.top_p = 0.95  # paper: 0.95
  c.rollout.top_k = 20  # paper: 20
  c.rollout.stop_strings = ()  # Training stops at </answer>.
  c.rollout.prompt_buckets = (40,)
  c.rollout.max_tokens = 200


def _countdown(c: ml_collections.ConfigDict) -> None:
  c.model.dtype = "bfloat16"
  c.evaluate.prompt_format = "full"
  c.evaluate.samples = 16  # paper: 16
  c.rollout.slots = 256
  c.rollout.temperature = 0.6  # paper: 0.6
  c.rollout.top_p = 0.95  # paper: 0.95
  c.rollout.top_k = 20  # paper: 20
  c.rollout.stop_strings = ()  # Training stops at </answer>.
  c.rollout.prompt_buckets = (256,)
  c.rollout.max_tokens = 1024  # paper: 1024


def _countdown_once(c: ml_collections.ConfigDict) -> None:
  """Samples as `configs/countdown.py:smollm2-135m` does in training."""
  c.rollout.slots = 64
  c.rollout.temperature = 1.0
  c.rollout.stop_strings = ("</answer>",)
  c.rollout.prompt_buckets = (24,)
  c.rollout.max_tokens = 72
  c.rollout.decode_chunk = 8


def _problems_tiny(c: ml_collections.ConfigDict) -> None:
  """Samples as `configs/orz.py:tiny` does in training."""
  c.evaluate.mathematics.grader = "rules"
  c.rollout.slots = 96
  c.rollout.temperature = 1.0
  c.rollout.prompt_buckets = (24,)
  c.rollout.max_tokens = 64


def _public(c: ml_collections.ConfigDict, prompt_format: str) -> None:
  c.model.dtype = "bfloat16"
  c.evaluate.prompt_format = prompt_format
  c.evaluate.max_tokens = "all=8096,math=16000"  # AZR: 8,096 for LiveCodeBench
  c.rollout.slots = 40  # The cache is as large as that of 64 slots in training.
  c.rollout.temperature = 0.0  # greedy
  c.rollout.prompt_buckets = (256, 512, 1024, 2048, 4096)
  c.rollout.max_tokens = 16_000  # AZR: 16,000 for mathematics
  c.rollout.decode_chunk = 64
  c.rollout.page_size = 256
  c.rollout.stop_strings = ()  # A thought may quote </answer>.
  if prompt_format == "plain":
    # A base model may continue with its own question.
    c.rollout.stop_strings = ("\nQuestion:",)
  c.executor.update(profile("benchmarks"))


def _average16(c: ml_collections.ConfigDict) -> None:
  c.model.dtype = "bfloat16"
  c.evaluate.prompt_format = "full"
  c.evaluate.samples = 16  # ORZ: 16
  c.evaluate.mathematics.answer = "reward"
  c.rollout.slots = 64
  c.rollout.temperature = 1.0  # ORZ: 1
  c.rollout.prompt_buckets = (256, 512, 1024, 2048, 4096)
  c.rollout.max_tokens = 8000  # ORZ: 8000
  c.rollout.decode_chunk = 64
  c.rollout.page_size = 256
  c.rollout.stop_strings = ("User:", "Human:", "Assistant:", "</answer>")
  c.executor.update(profile("mathematics"))  # as in training


def _questions(c: ml_collections.ConfigDict, prompt_format: str) -> None:
  c.model.dtype = "bfloat16"
  c.evaluate.agents = ("code_agent",)
  c.evaluate.prompt_format = prompt_format
  c.rollout.slots = 64
  c.rollout.temperature = 0.6  # paper: 0.6
  c.rollout.stop_strings = ()  # A response ends with its code block.
  c.rollout.prompt_buckets = (256, 512, 1024, 2048, 4096)
  c.rollout.max_tokens = 6144  # tokens of a conversation
  c.rollout.extend_chunk = 128
  c.executor.update(profile("code_interpreter"))


def _questions_tiny(c: ml_collections.ConfigDict) -> None:
  c.evaluate.agents = ("code_agent",)
  c.evaluate.tool.max_output_tokens = 40
  c.rollout.slots = 128
  c.rollout.temperature = 0.6  # paper: 0.6
  c.rollout.stop_strings = ()  # A response ends with its code block.
  c.rollout.prompt_buckets = (48,)
  c.rollout.max_tokens = 144
  c.rollout.decode_chunk = 8
  c.rollout.extend_chunk = 16
  c.executor.update(profile("code_interpreter_tiny"))


def _questions_small(c: ml_collections.ConfigDict) -> None:
  c.evaluate.agents = ("code_agent",)
  c.evaluate.prompt_format = "few_shot"
  c.evaluate.tool.max_calls = 3
  c.rollout.slots = 16
  c.rollout.temperature = 0.6  # paper: 0.6
  # After examples, a model may continue with its own question.
  c.rollout.stop_strings = ("\nQuestion:",)
  c.rollout.prompt_buckets = (512, 1024)
  c.rollout.max_tokens = 384
  c.rollout.extend_chunk = 16
  c.executor.update(profile("code_interpreter_small"))
