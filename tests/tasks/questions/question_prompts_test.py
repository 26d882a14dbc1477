"""Question prompts, and the examples in few-shot prompts."""

import contextlib
import io
from typing import Any

import jax
import pytest
import tokenizers as hf_tokenizers
import transformers
from letters import Letters
from typed import instance_of, stand_in

from azr_jax.models import tokenizers
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.weights import Weights
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.questions import prompts
from azr_jax.tools import code_blocks


@pytest.mark.parametrize("solution_style", prompts.SOLUTION_STYLES)
def test_examples_are_correct(solution_style):
  few_shot = prompts.ask("1?", solution_style, "few_shot")
  for question, response in prompts.examples(solution_style):
    assert few_shot.count(response) == 1 and question in few_shot
    answer = code_blocks.find_answer(response)
    block = code_blocks.find_block(response)
    assert (block is None) == (solution_style == "text")
    if block is None:
      continue
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
      exec(block.code, {})
    printed = stdout.getvalue().strip()
    if solution_style == "code":
      assert code_blocks.find_answer(printed) and block.end == len(response)
    else:
      assert printed == answer


class Templated(Letters):
  def apply_chat_template(self, messages, *_, **__):
    [message] = messages
    return f"[{message['content']}]"


@pytest.mark.parametrize("solution_style", prompts.SOLUTION_STYLES)
def test_prompts_contain_the_question_and_the_answer_marks(solution_style):
  full = prompts.ask("What is 2 * 3?", solution_style, "full")
  assert "What is 2 * 3?" in full and "<<<" in full
  assert ("```python" in full) == (solution_style != "text")
  chat = prompts.ask(
    "What is 2 * 3?", solution_style, "chat", Chat(Templated())
  )
  assert chat == f"[{full.removesuffix('Reply:' + chr(10)).rstrip()}]"
  with pytest.raises(ValueError, match="expected a model's chat"):
    prompts.ask("What is 2 * 3?", solution_style, "chat")
  compact = prompts.ask("What is 2 * 3?", solution_style, "compact")
  assert compact.startswith("What is 2 * 3?\n")
  assert compact.endswith(
    "?\n" if solution_style == "free" else f"\n{solution_style}\n"
  )


# Templates like Qwen2.5's, which adds a system message, and like Llama 3's,
# which adds BOS and strips the message.
TEMPLATES = {
  "system": (
    "{% if messages[0].role != 'system' %}<|start|>system\nYou help.<|end|>\n"
    "{% endif %}{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}"
    "<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
  ),
  "bos": (
    "{{ bos_token }}{% for m in messages %}<|start|>{{ m.role }}\n\n"
    "{{ m.content | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n\n{% endif %}"
  ),
}
SPECIAL = ["<|start|>", "<|end|>", "<|bos|>"]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("solution_style", prompts.SOLUTION_STYLES)
def test_chat_prompts_have_the_ids_of_transformers(
  solution_style, template, tmp_path
):
  """A published checkpoint's prompts match its own template, token by token."""
  trained = hf_tokenizers.ByteLevelBPETokenizer()
  trained.train_from_iterator(
    ["user assistant"], 300, special_tokens=SPECIAL, show_progress=False
  )
  theirs = transformers.PreTrainedTokenizerFast(
    tokenizer_object=trained._tokenizer,
    bos_token="<|bos|>",
    eos_token="<|end|>",
    additional_special_tokens=SPECIAL[:1],
    chat_template=TEMPLATES[template],
  )
  theirs.save_pretrained(tmp_path)
  ours = tokenizers.from_folder(tmp_path)
  question = "What is <|end|> 2 * 3?\n"
  full = prompts.ask(question, solution_style, "full")
  content = full.removesuffix("Reply:\n").rstrip()
  expected: Any = theirs.apply_chat_template(
    [{"role": "user", "content": content}],
    add_generation_prompt=True,
    return_dict=False,
  )
  # Training, benchmarks, measurements and baselines tokenize with `Policy`.
  policy = Policy(stand_in(Sampler), ours, Weights(), jax.random.key(0))
  text = prompts.ask(question, solution_style, "chat", Chat(ours))
  assert list(policy.prompt(text).token_ids) == expected
  assert instance_of(str, theirs.decode(expected)).endswith(
    "assistant\n" + "\n" * (template == "bos")
  )
