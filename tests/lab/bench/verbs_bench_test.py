"""The benchmark of the verbs trains on what the update trains on."""

import numpy as np

from azr_jax.lab.bench import updating, verbs
from azr_jax.learner import packing


def test_the_verbs_have_the_data_of_the_update():
  examples = updating.examples([5, 3], 11)
  data = list(map(verbs.datum, examples))
  packed = packing.pack(
    examples, row_length=8, rows_multiple=1, aggregation="token_mean"
  )
  assert packed.tokens.shape == (1, 8)
  for name, columns in {
    "tokens": [datum.tokens for datum in data],
    "targets": [datum.targets for datum in data],
    "advantages": [datum.inputs["advantages"] for datum in data],
    "sampled_logprobs": [datum.inputs["logprobs"] for datum in data],
  }.items():
    np.testing.assert_array_equal(
      getattr(packed, name)[0], np.concatenate(columns), err_msg=name
    )
