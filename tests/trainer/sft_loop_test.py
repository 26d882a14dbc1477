"""Supervised training whose rows are too short."""

import pytest

from azr_jax import sft
from azr_jax.configs import sft as sft_config


def test_rows_that_hold_no_conversation_are_refused(tmp_path):
  config = sft_config.get_config("countdown_smoke")
  config.learner.row_length = 4
  with pytest.raises(ValueError, match="config.learner.row_length=4: expected"):
    sft.train(config, str(tmp_path))
