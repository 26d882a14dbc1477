"""Conversations to learn from, of a model's own (R1-CI, section 4.1).

python -m azr_jax.trajectories --config=configs/trajectories.py:tiny \\
    --model=SPEC --workdir=DIR
"""

import ml_collections

from configs import code_interpreter, evaluate

VARIANTS = ("paper", "tiny")


def get_config(variant: str = "paper") -> ml_collections.ConfigDict:
  """Returns the sampling's configuration of a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  tiny = variant == "tiny"
  c = evaluate.get_config("questions_tiny" if tiny else "questions")
  trained = code_interpreter.get_config("tiny" if tiny else "qwen2.5-7b")
  c.rollout.temperature = 1.0
  c.trajectories = ml_collections.ConfigDict()
  # Other questions than those of GRPO: of a file, give another one.
  c.trajectories.questions = trained.code_interpreter.questions
  c.trajectories.count = trained.code_interpreter.count
  c.trajectories.data_seed = 2 if tiny else 0
  c.trajectories.forms = ("free", "text_then_code", "code_then_text")
  c.trajectories.samples = 4  # conversations about a question, of each form
  c.trajectories.per_task = 70  # kept; paper: 70
  c.trajectories.multi_turn_weight = 3.0  # of conversations with code
  if tiny:
    # Those that the tiny model knows.
    c.trajectories.forms = ("free", "text", "code")
  return c
