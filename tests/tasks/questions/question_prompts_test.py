"""Prompts of questions, and the examples that few-shot prompts show."""

import contextlib
import io

import pytest

from azr_jax.rollout import code_blocks
from azr_jax.tasks.questions import prompts


@pytest.mark.parametrize("form", prompts.FORMS)
def test_examples_are_correct(form):
  few_shot = prompts.ask("1?", form, "few_shot")
  for question, response in prompts.examples(form):
    assert few_shot.count(response) == 1 and question in few_shot
    answer = code_blocks.find_answer(response)
    block = code_blocks.find_block(response)
    assert (block is None) == (form == "text")
    if block is None:
      continue
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
      exec(block.code, {})
    printed = stdout.getvalue().strip()
    if form == "code":
      assert code_blocks.find_answer(printed) and block.end == len(response)
    else:
      assert printed == answer


class Templated:
  def chat(self, text):
    return f"[{text}]"


@pytest.mark.parametrize("form", prompts.FORMS)
def test_prompts_contain_the_question_and_the_answer_marks(form):
  full = prompts.ask("What is 2 * 3?", form, "full")
  assert "What is 2 * 3?" in full and "<<<" in full
  assert ("```python" in full) == (form != "text")
  chat = prompts.ask("What is 2 * 3?", form, "chat", Templated())
  assert chat == f"[{full.removesuffix('Reply:' + chr(10)).rstrip()}]"
  with pytest.raises(ValueError, match="expected a tokenizer"):
    prompts.ask("What is 2 * 3?", form, "chat")
  compact = prompts.ask("What is 2 * 3?", form, "compact")
  assert compact.startswith("What is 2 * 3?\n")
  assert compact.endswith("?\n" if form == "free" else f"\n{form}\n")
