"""The text around a question."""

import pytest
from typed import stand_in

from azr_jax.evals import prompt_formats
from azr_jax.tasks.chats import Chat


@pytest.mark.parametrize("answer_format", sorted(prompt_formats.ANSWER_FORMATS))
def test_prompts_contain_request_and_instruction(answer_format):
  text = prompt_formats.prompt("REQUEST", answer_format, "full", stand_in(Chat))
  assert (
    "REQUEST" in text and prompt_formats.ANSWER_FORMATS[answer_format] in text
  )
  assert text.endswith("<think>")
  assert prompt_formats.prompt(
    "REQUEST", answer_format, "plain", stand_in(Chat)
  ).endswith("Answer:")
  with pytest.raises(ValueError, match="prompt_format 'loud'"):
    prompt_formats.prompt("REQUEST", answer_format, "loud", stand_in(Chat))
