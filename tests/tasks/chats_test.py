"""Chats match `transformers`, and work around missing template features.

Each template reproduces one quirk of a published model's template.
"""

import types
from typing import Any

import pytest
import tokenizers as hf_tokenizers
import transformers

from azr_jax.config.settings import Invalid
from azr_jax.models import chat_templates, tokenizers
from azr_jax.tasks.chats import Chat, ChatSettings

SPECIAL = ["<s>", "<|im_start|>", "<|im_end|>"]
TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
ASKS = "{% if add_generation_prompt %}<|im_start|>assistant\n"
TEMPLATES = {
  # SmolLM2's template adds a default system message.
  "default system": (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}"
    "<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
    f"{TURN}{{% endfor %}}{ASKS}{{% endif %}}"
  ),
  # Qwen3's template writes an empty thought if thinking is disabled.
  "thinks": (
    f"{{% for m in messages %}}{TURN}{{% endfor %}}{ASKS}"
    "{% if enable_thinking is defined and enable_thinking is false %}"
    "<think>\n\n</think>\n\n{% endif %}{% endif %}"
  ),
  # Gemma's template rejects the system role, trims contents, and adds BOS.
  "refuses system": (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    f"{ASKS}{{% endif %}}"
  ),
  "drops system": (
    f"{{% for m in messages %}}{{% if m.role != 'system' %}}{TURN}{{% endif %}}"
    f"{{% endfor %}}{ASKS}{{% endif %}}"
  ),
  # The template of R1's distilled models opens the thought.
  "opens thought": (
    f"{{% for m in messages %}}{TURN}{{% endfor %}}{ASKS}<think>\n{{% endif %}}"
  ),
}
ASK = {"role": "user", "content": "How many?"}
SYSTEM = {"role": "system", "content": "Be brief."}
TALK = [ASK, {"role": "assistant", "content": "12"}, ASK]


@pytest.fixture(scope="module", name="plain")
def make_plain(tmp_path_factory):
  folder = tmp_path_factory.mktemp("chats")
  trained = hf_tokenizers.ByteLevelBPETokenizer()
  trained.train_from_iterator(
    ["user assistant"], 300, special_tokens=SPECIAL, show_progress=False
  )
  transformers.PreTrainedTokenizerFast(
    tokenizer_object=trained._tokenizer,
    bos_token="<s>",
    eos_token="<|im_end|>",
    additional_special_tokens=SPECIAL[1:2],
    chat_template=TEMPLATES["thinks"],
  ).save_pretrained(folder)
  return folder


@pytest.fixture(name="pair")
def make_pair(plain):
  """Returns our tokenizer and transformers' tokenizer with a template."""
  ours: Any = tokenizers.from_folder(plain)
  theirs: Any = transformers.AutoTokenizer.from_pretrained(str(plain))

  def make(template):
    for tokenizer in (ours._tokenizer, theirs):
      tokenizer.chat_template = TEMPLATES[template]
    return ours, theirs

  return make


@pytest.mark.parametrize(
  "messages, prefill",
  [
    ([ASK], ""),
    (TALK, ""),
    ([ASK], "<think>\n"),
    (TALK, "I <b> think\nso"),
    ([*TALK, {"role": "assistant", "content": "As I"}], ""),
    ([*TALK, {"role": "assistant", "content": "As I"}], " said"),
  ],
)
@pytest.mark.parametrize("template", TEMPLATES)
def test_prompts_have_the_ids_of_transformers(
  pair, template, messages, prefill
):
  ours, theirs = pair(template)
  arguments = {"enable_thinking": False} if template == "thinks" else {}
  whole = [*messages]
  if prefill and whole[-1]["role"] == "user":
    whole.append({"role": "assistant", "content": prefill})
  elif prefill:
    whole[-1] = {"role": "assistant", "content": "As I said"}
  is_continued = whole[-1]["role"] == "assistant"
  expected = theirs.apply_chat_template(
    whole,
    add_generation_prompt=not is_continued,
    continue_final_message=is_continued,
    return_dict=False,
    **arguments,
  )
  text = Chat(ours, arguments, prefill).prompt(messages)
  assert ours.encode_prompt(text)[-len(expected) :] == expected
  assert ours.encode(text) == expected


def test_thinking_can_be_turned_off(pair):
  ours, _ = pair("thinks")
  on, off = Chat(ours).prompt("-"), Chat(ours, {"enable_thinking": False})
  assert off.prompt("-") == f"{on}<think>\n\n</think>\n\n"
  assert Chat(ours, {"enable_thinking": True}).prompt("-") == on


@pytest.mark.parametrize("template", ["refuses system", "drops system"])
@pytest.mark.parametrize("messages", [[ASK], TALK])
def test_a_system_message_moves_into_the_first_turn(pair, template, messages):
  ours, _ = pair(template)
  chat = Chat(ours)
  moved = {"role": "user", "content": "Be brief.\n\nHow many?"}
  text = chat.prompt([SYSTEM, *messages])
  assert text == chat.prompt([moved, *messages[1:]])
  said = []
  chat.check(said.append)
  assert not said
  chat.check(said.append, SYSTEM["content"])
  assert len(said) == 1 and "has no system role" in said[0]
  alone = chat.prompt([SYSTEM])
  assert alone == chat.prompt(SYSTEM["content"])


def test_a_system_message_stays_where_templates_have_it(pair):
  ours, _ = pair("default system")
  text = Chat(ours).prompt([SYSTEM, ASK])
  assert text.count("<|im_start|>system\nBe brief.<|im_end|>") == 1
  assert "Be brief.\n\nHow" not in text
  said = []
  Chat(ours).check(said.append, "Be brief.")
  assert not said


def test_what_a_template_refuses_besides_stays_refused(pair):
  ours, _ = pair("thinks")
  ours._tokenizer.chat_template = (
    "{% if messages[0].role != 'tool' %}{{ raise_exception('only tools') }}"
    "{% endif %}"
  )
  with pytest.raises(ValueError, match="only tools"):
    Chat(ours).prompt([SYSTEM, ASK])


def test_a_failed_rendering_moves_no_system_message(pair, monkeypatch):
  ours, _ = pair("default system")
  made = iter([{"failure": "its process ended"}, {"text": "folded"}])
  fails_once = types.SimpleNamespace(call=lambda _: next(made))
  monkeypatch.setattr(chat_templates, "_RENDERER", fails_once)
  with pytest.raises(chat_templates.RenderingFailed, match="process ended"):
    Chat(ours).prompt([SYSTEM, ASK])


@pytest.mark.parametrize(
  "arguments",
  [
    {"enable_thinkng": False},
    {"chat_template": "{{ 1 }}"},
    {"tokenize": True},
    {"messages": []},
  ],
)
def test_arguments_that_a_template_does_not_use_are_named(pair, arguments):
  ours, _ = pair("thinks")
  [name] = arguments
  with pytest.raises(ValueError, match=f"chat_template_kwargs has '{name}'"):
    Chat(ours, arguments).check(print)


@pytest.mark.parametrize(
  "value", ["{'enable_thinking': False}", "[1]", "{", "true", '{"a": NaN}']
)
def test_arguments_are_a_json_object(value):
  with pytest.raises(Invalid, match="chat_template_kwargs=.*a JSON object"):
    ChatSettings(chat_template_kwargs=value)
  assert ChatSettings(chat_template_kwargs='{"a": [1]}').arguments == {"a": [1]}
  assert ChatSettings().arguments == {}


@pytest.mark.parametrize(
  "template, prefill, is_changed",
  [
    ("thinks", "<think>\n", False),
    ("refuses system", "<think>", False),
    ("refuses system", "<think>\n", True),  # The template trims it.
    ("opens thought", "<think>\n", False),
    ("opens thought", "So", True),  # The prompt lacks the opening tag.
  ],
)
def test_a_prefill_that_a_template_changes_is_reported(
  pair, template, prefill, is_changed
):
  ours, _ = pair(template)
  said = []
  Chat(ours, {}, prefill).check(said.append)
  assert ["changes prefill=" in text for text in said] == [True] * is_changed
