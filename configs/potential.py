"""Measurement of improvement potential (R1-CI, section 3.3).

  python -m azr_jax.potential --config=configs/potential.py:tiny --model=SPEC \\
      --workdir=DIR

Four agents at five temperatures give 20 answers to each question. The paper
does not state the temperatures.
"""

import ml_collections

from azr_jax.config import overrides
from azr_jax.configs import code_interpreter, evaluate
from azr_jax.lab.data.question_potential import PotentialSettings

VARIANTS = ("paper", "tiny")


def get_config(variant: str = "paper") -> ml_collections.ConfigDict:
  """Returns the configuration of a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  is_tiny = variant == "tiny"
  c = evaluate.get_config("questions_tiny" if is_tiny else "questions")
  trained = code_interpreter.get_config("tiny" if is_tiny else "qwen2.5-7b")
  c.potential = overrides.to_config(PotentialSettings())
  c.potential.questions = trained.code_interpreter.questions
  c.potential.count = trained.code_interpreter.count
  c.potential.data_seed = trained.code_interpreter.data_seed
  if is_tiny:
    # The tiny model was not trained on the prompts of `steer`. To make up for
    # it, the other agents answer at six temperatures instead of five.
    c.potential.agents = ("text", "code", "code_agent")
    c.potential.temperatures = code_interpreter.SMALL_TEMPERATURES
  return c
