"""Sampling of conversations to train on (R1-CI, section 4.1).

  python -m azr_jax.trajectories --config=configs/trajectories.py:tiny \\
      --model=SPEC --workdir=DIR

The questions differ from those of GRPO: `paper` reads the split `sft`, and
`tiny` generates questions with another seed.
"""

import ml_collections

from azr_jax.config import overrides
from azr_jax.configs import code_interpreter, evaluate
from azr_jax.lab.data.rejection_sampling import TrajectoriesSettings

VARIANTS = ("paper", "tiny")


def get_config(variant: str = "paper") -> ml_collections.ConfigDict:
  """Returns the configuration of a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  is_tiny = variant == "tiny"
  c = evaluate.get_config("questions_tiny" if is_tiny else "questions")
  trained = code_interpreter.get_config("tiny")
  c.rollout.temperature = 1.0
  c.trajectories = overrides.to_config(TrajectoriesSettings())
  if is_tiny:
    c.trajectories.questions = trained.code_interpreter.questions
    c.trajectories.count = trained.code_interpreter.count
    c.trajectories.data_seed = 2
    # The tiny model was trained on these styles.
    c.trajectories.solution_styles = ("free", "text", "code")
  return c
