"""Chat templates: as transformers applies them, but with limits and a date."""

import datetime

import pytest
import tokenizers as hf_tokenizers
import transformers

from azr_jax.models import chat_templates
from azr_jax.models.tokenizers import HuggingFaceTokenizer

CHAT = (
  "{{ bos_token }}{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
  "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}"
  "{% if add_generation_prompt %}<assistant>{% endif %}"
)
MESSAGES = [
  {"role": "user", "content": " é 中? "},
  {"role": "assistant", "content": "yes"},
]
TOOL = {"type": "function", "function": {"name": "count"}}


@pytest.fixture(scope="module")
def theirs():
  return transformers.PreTrainedTokenizerFast(
    tokenizer_object=hf_tokenizers.ByteLevelBPETokenizer()._tokenizer,
    bos_token="<s>",
    eos_token="</s>",
  )


@pytest.fixture
def ours(theirs):
  return HuggingFaceTokenizer(theirs, [theirs.eos_token_id])


@pytest.mark.parametrize("is_answered", [False, True])
def test_the_text_is_that_of_transformers(theirs, ours, is_answered):
  theirs.chat_template = {"default": CHAT, "tool_use": "tools: " + CHAT}
  for tools in ([], [TOOL]):
    assert ours.apply_chat_template(
      MESSAGES, is_answered, tools
    ) == theirs.apply_chat_template(
      MESSAGES,
      tools=tools or None,
      tokenize=False,
      add_generation_prompt=not is_answered,
    )


@pytest.mark.parametrize(
  "template, problem",
  [
    ("{{ raise_exception('no tools') }}", r"\(TemplateError: no tools\)$"),
    ("{{ 'x }}", "TemplateSyntaxError"),
    ("{{ 'a' * 3000000000 }}", r"\(MemoryError\)$"),
    pytest.param(
      "{% set ns = namespace(x='a') %}{% for i in range(60) %}"
      "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
      r"\(MemoryError\)$",
      marks=pytest.mark.slow,  # It fills a gigabyte.
    ),
    ("{{ 'a' * 20000000 }}", "20000000 characters: expected at most"),
  ],
)
def test_a_template_that_fails_or_grows_is_refused(
  theirs, ours, template, problem
):
  theirs.chat_template = template
  with pytest.raises(ValueError, match=problem) as error:
    ours.apply_chat_template("hello")
  assert len(str(error.value).splitlines()) == 1


def test_a_template_that_does_not_end_is_stopped(theirs, ours, monkeypatch):
  monkeypatch.setattr(chat_templates, "_TIMEOUT_S", 0.5)
  theirs.chat_template = (
    "{% set all = range(99999) | list %}{% for i in all %}"
    "{% for j in all %}{% endfor %}{% endfor %}"
  )
  with pytest.raises(ValueError, match="not done in 0.5 s"):
    ours.apply_chat_template("hello")
  theirs.chat_template = CHAT
  monkeypatch.undo()
  assert ours.apply_chat_template("hello") == "<s><user>hello<assistant>"


def test_a_template_sees_the_date_that_is_fixed(theirs, ours):
  theirs.chat_template = "{{ strftime_now('%d %b %Y') }}"
  with chat_templates.dated(datetime.datetime(2024, 7, 26)):
    assert ours.apply_chat_template("hello") == "26 Jul 2024"
