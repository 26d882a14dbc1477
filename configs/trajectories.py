"""Sampling of conversations to train on (R1-CI, section 4.1).

  python -m azr_jax.trajectories --config=configs/trajectories.py:tiny \\
      --model=SPEC --workdir=DIR

| variant | who writes the conversations |
| --- | --- |
| `paper` | the model of --model |
| `gpt-4o` | GPT-4o, as in the paper; --model is the model that will learn |
| `tiny` | the embedded model, from generated questions |

The questions differ from those of GRPO: `tiny` generates them with another
seed, and the others read the split `sft`.
"""

import ml_collections

from azr_jax.config import overrides
from azr_jax.configs import code_interpreter, evaluate
from azr_jax.lab.data.rejection_sampling import TrajectoriesSettings
from azr_jax.lab.data.teacher import TeacherSettings

VARIANTS = ("paper", "gpt-4o", "tiny")


def get_config(variant: str = "paper") -> ml_collections.ConfigDict:
  """Returns the configuration of a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  is_tiny = variant == "tiny"
  c = evaluate.get_config("questions_tiny" if is_tiny else "questions")
  trained = code_interpreter.get_config("tiny")
  c.rollout.temperature = 1.0
  c.trajectories = overrides.to_config(TrajectoriesSettings())
  c.teacher = overrides.to_config(TeacherSettings())
  if variant == "gpt-4o":
    c.teacher.url = "https://api.openai.com/v1"
    c.teacher.model = "gpt-4o"  # paper: GPT-4o
    c.teacher.key_variable = "OPENAI_API_KEY"
  if is_tiny:
    c.trajectories.questions = trained.code_interpreter.questions
    c.trajectories.count = trained.code_interpreter.count
    c.trajectories.data_seed = 2
    # The tiny model was trained on these styles.
    c.trajectories.solution_styles = ("free", "text", "code")
  return c
