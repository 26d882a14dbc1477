"""Parameters that the tests of sampling share."""

import jax
import pytest
from rollout_model import MODEL

from azr_jax.models import transformer


@pytest.fixture(scope="session")
def params():
  """Random parameters of the small model, with sharper logits.

  Greedy completions then differ from prompt to prompt.
  """
  drawn = transformer.init_params(MODEL, jax.random.key(0))
  return jax.tree.map(lambda x: x, drawn) | {
    "embedding": drawn["embedding"] * 20
  }
