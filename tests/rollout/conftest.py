"""Parameters shared by the sampling tests."""

import jax
import pytest
from rollout_model import MODEL

from azr_jax.models import transformer


@pytest.fixture(scope="session")
def params():
  """Random parameters of the small model, with sharpened logits.

  Greedy completions then differ between prompts.
  """
  init = jax.jit(lambda key: transformer.init_params(MODEL, key))
  drawn = init(jax.random.key(0))
  return drawn | {"embedding": drawn["embedding"] * 20}
