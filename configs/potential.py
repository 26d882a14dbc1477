"""Measurement of improvement potential (R1-CI, section 3.3).

python -m azr_jax.potential --config=configs/potential.py:tiny --model=SPEC \\
    --workdir=DIR
"""

import ml_collections

from configs import code_interpreter, evaluate

VARIANTS = ("paper", "tiny")


def get_config(variant: str = "paper") -> ml_collections.ConfigDict:
  """Returns the measurement's configuration of a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  tiny = variant == "tiny"
  c = evaluate.get_config("questions_tiny" if tiny else "questions")
  trained = code_interpreter.get_config("tiny" if tiny else "qwen2.5-7b")
  c.potential = ml_collections.ConfigDict()
  c.potential.questions = trained.code_interpreter.questions
  c.potential.count = trained.code_interpreter.count
  c.potential.data_seed = trained.code_interpreter.data_seed
  # Four agents x five temperatures: 20 answers; the paper names none of them.
  c.potential.agents = ("text", "code", "free", "steer")
  c.potential.temperatures = (0.2, 0.4, 0.6, 0.8, 1.0)
  if tiny:
    # The tiny model does not know the steerer's prompts: five more of `free`.
    c.potential.agents = ("text", "code", "free")
    c.potential.temperatures = (0.3, 0.5, 0.7, 0.8, 0.9, 1.0)
  return c
