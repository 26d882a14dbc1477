"""Evaluation of a model on benchmarks.

  python -m azr_jax.evaluate --config=configs/evaluate.py \\
      --model=embedded:azr-tiny --benchmark=programs_heldout --workdir=DIR

| variant | sampling |
| --- | --- |
| `greedy` | one greedy answer each, for `programs_heldout` |
| `countdown_tiny` | 16 answers as in Countdown, section 4.1; compact prompts |
| `countdown` | the same with full prompts and 1,024 tokens |
| `countdown_once` | one answer at temperature 1, as it was trained to give |
| `problems_tiny` | one answer each at temperature 1, as `configs/orz.py:tiny` |
| `full` | public benchmarks, greedy, in the prompt format of training |
| `chat` | `full` with a chat template |
| `plain` | `full` with a prompt format for base models |
| `average16` | ORZ: 16 answers, asked and graded as its reward is |
| `questions_tiny` | the benchmark `questions` by an agent, for the tiny model |
| `questions` | the same benchmark for instructed models (R1-CI) |
| `questions_full` | the same for models without a chat template |
| `questions_small` | for models that are too small to follow instructions |

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
# ORZ's published code grades truncated responses otherwise than its paper, and
# so does the preset `ours` of configs/orz.py.
PUBLISHED_CODE = {"evaluate.mathematics.truncated_grade": "incorrect"}
OURS = PUBLISHED_CODE


def get_config(variant: str = "greedy") -> ml_collections.ConfigDict:
  """Returns the evaluation configuration of a variant of `VARIANTS`."""
  variant, preset = presets.split(variant, VARIANTS)
  c = overrides.to_config(settings.EvaluateSettings())
  c.rollout.slots = 96
  c.rollout.temperature = 0.0  # greedy
  if variant.startswith("countdown"):
    _countdown(c, variant)
  elif variant == "problems_tiny":
    c.rollout.temperature = 1.0
    c.evaluate.mathematics.grader = "rules"
    c.rollout.prompt_buckets = (24,)
    c.rollout.max_tokens = 64
  elif variant.startswith("questions"):
    _questions(c, variant)
  elif variant != "greedy":
    _public(c, variant)
  presets.apply(c, preset, PUBLISHED_CODE, OURS)
  return c


def _countdown(c: ml_collections.ConfigDict, variant: str) -> None:
  c.evaluate.samples = 16  # paper: 16
  c.rollout.temperature = 0.6  # paper: 0.6
  c.rollout.top_p = 0.95  # paper: 0.95
  c.rollout.top_k = 20  # paper: 20
  c.rollout.stop_strings = ()  # Training stops at </answer>.
  c.rollout.slots = 256
  c.rollout.prompt_buckets = (40,)
  c.rollout.max_tokens = 200
  if variant == "countdown":
    c.model.dtype = "bfloat16"
    c.evaluate.prompt_format = "full"
    c.rollout.prompt_buckets = (256,)
    c.rollout.max_tokens = 1024  # paper: 1024
  if variant == "countdown_once":
    c.evaluate.samples = 1
    c.rollout.temperature = 1.0
    c.rollout.top_p = 1.0
    c.rollout.top_k = 0
    c.rollout.stop_strings = ("</answer>",)
    c.rollout.slots = 64
    c.rollout.prompt_buckets = (24,)
    c.rollout.max_tokens = 72
    c.rollout.decode_chunk = 8


def _public(c: ml_collections.ConfigDict, variant: str) -> None:
  c.model.dtype = "bfloat16"
  c.evaluate.prompt_format = "full" if variant == "average16" else variant
  c.rollout.slots = 40  # The cache is as large as that of 64 slots in training.
  c.rollout.prompt_buckets = (256, 512, 1024, 2048, 4096)
  c.rollout.max_tokens = 16_000  # AZR: 16,000 for mathematics
  c.evaluate.max_tokens = "all=8096,math=16000"  # AZR: 8,096 for LiveCodeBench
  c.rollout.decode_chunk = 64
  c.rollout.page_size = 256
  c.rollout.stop_strings = ()  # A thought may quote </answer>.
  if variant == "plain":
    c.rollout.stop_strings = ("\nQuestion:",)
  c.executor.update(profile("benchmarks"))
  if variant == "average16":
    c.rollout.slots = 64
    c.rollout.max_tokens = 8000  # ORZ: 8000
    c.evaluate.max_tokens = ""
    c.rollout.stop_strings = ("User:", "Human:", "Assistant:", "</answer>")
    c.executor.update(profile("mathematics"))  # as in training
    c.evaluate.samples = 16  # ORZ: 16
    c.evaluate.mathematics.answer = "reward"
    c.rollout.temperature = 1.0  # ORZ: 1


def _questions(c: ml_collections.ConfigDict, variant: str) -> None:
  c.evaluate.agents = ("code_agent",)
  c.rollout.temperature = 0.6  # paper: 0.6
  c.rollout.stop_strings = ()
  if variant == "questions_tiny":
    c.rollout.slots = 128
    c.rollout.prompt_buckets = (48,)
    c.rollout.max_tokens = 144
    c.rollout.decode_chunk = 8
    c.rollout.extend_chunk = 16
    c.evaluate.tool.max_output_tokens = 40
    c.executor.update(profile("code_interpreter_tiny"))
    return
  if variant == "questions_small":
    c.evaluate.prompt_format = "few_shot"
    c.evaluate.tool.max_calls = 3
    c.rollout.slots = 16
    c.rollout.prompt_buckets = (512, 1024)
    c.rollout.max_tokens = 384
    c.rollout.extend_chunk = 16
    c.rollout.stop_strings = ("\nQuestion:",)
    c.executor.update(profile("code_interpreter_small"))
    return
  c.model.dtype = "bfloat16"
  c.evaluate.prompt_format = "full" if variant == "questions_full" else "chat"
  c.rollout.slots = 64
  c.rollout.prompt_buckets = (256, 512, 1024, 2048, 4096)
  c.rollout.max_tokens = 6144
  c.rollout.extend_chunk = 128
  c.executor.update(profile("code_interpreter"))
