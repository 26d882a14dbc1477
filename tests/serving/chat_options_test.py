"""A chat's prompt: the template's arguments, and where the prompt ends."""

import pytest
import tokenizers as hf_tokenizers
import transformers

from azr_jax.models import tokenizers
from azr_jax.serving.errors import ApiError
from azr_jax.serving.protocol import Reader, ServedModel
from azr_jax.serving.settings import LimitSettings

TEMPLATE = (
  "{% for m in messages %}{% if m.role == 'system' %}"
  "{{ raise_exception('no system') }}{% endif %}{{ m.role }}: {{ m.content }}."
  "\n{% endfor %}{% if add_generation_prompt %}assistant:"
  "{% if enable_thinking is false %} ()"
  "{% endif %}{% if mood is defined %} {{ mood }}{% endif %}{% endif %}"
)
ASK = {"role": "user", "content": "x"}
BEGUN = {"role": "assistant", "content": "So "}
OFF = {"enable_thinking": False}


@pytest.fixture(scope="module", name="tokenizer")
def make_tokenizer(tmp_path_factory):
  folder = tmp_path_factory.mktemp("chat")
  trained = hf_tokenizers.ByteLevelBPETokenizer()
  trained.train_from_iterator(
    ["user"], 260, special_tokens=["<end>"], show_progress=False
  )
  transformers.PreTrainedTokenizerFast(
    tokenizer_object=trained._tokenizer,
    eos_token="<end>",
    chat_template=TEMPLATE,
  ).save_pretrained(folder)
  return tokenizers.from_folder(folder)


@pytest.fixture(name="prompt")
def make_prompt(tokenizer):
  """Returns a function from a request and server settings to the prompt."""

  def prompt(messages, served="", **fields):
    model = ServedModel(
      name="tiny",
      has_steps=False,
      tokenizer=tokenizer,
      vocab_size=512,
      context=512,
      max_prompt_tokens=128,
      max_tokens=8,
      temperature=1.0,
      top_p=1.0,
      top_k=0,
      max_logprobs=20,
      template_arguments=LimitSettings(chat_template_kwargs=served).arguments,
      created=0,
    )
    body = {"messages": messages, **fields}
    [found] = Reader(model, 0, 0).chat(body).job.prompts
    assert list(found.token_ids) == tokenizer.encode(found.text)
    return found.text

  return prompt


CONTINUED = {"continue_final_message": True, "add_generation_prompt": False}


@pytest.mark.parametrize(
  "messages, fields, text",
  [
    ([ASK], {}, "user: x.\nassistant:"),
    ([ASK], {"chat_template_kwargs": OFF}, "user: x.\nassistant: ()"),
    ([ASK], {"chat_template_kwargs": None}, "user: x.\nassistant:"),
    ([ASK], {"add_generation_prompt": True}, "user: x.\nassistant:"),
    ([ASK], {"add_generation_prompt": False}, "user: x.\n"),
    ([ASK, BEGUN], {}, "user: x.\nassistant: So .\nassistant:"),
    ([ASK, BEGUN], CONTINUED, "user: x.\nassistant: So "),
    (
      [{"role": "system", "content": "Hush."}, ASK],
      {},
      "user: Hush.\n\nx.\nassistant:",
    ),
    (
      [{"role": "user", "content": [{"type": "text", "text": "x"}] * 2}],
      {},
      "user: xx.\nassistant:",
    ),
  ],
)
def test_a_prompt_is_what_its_request_says(prompt, messages, fields, text):
  assert prompt(messages, **fields) == text


def test_a_request_overrides_the_arguments_of_the_server(prompt):
  served = '{"enable_thinking": false, "mood": "glad"}'
  assert prompt([ASK], served) == "user: x.\nassistant: () glad"
  given = {"enable_thinking": True}
  assert (
    prompt([ASK], served, chat_template_kwargs=given)
    == "user: x.\nassistant: glad"
  )


@pytest.mark.parametrize(
  "messages, fields, param, message",
  [
    ([ASK], {"chat_template_kwargs": [1]}, "chat_template_kwargs", "an object"),
    (
      [ASK],
      {"chat_template_kwargs": {"chat_template": "{{ 1 }}"}},
      "messages",
      "chat_template_kwargs has 'chat_template'",
    ),
    ([ASK], {"add_generation_prompt": 1}, "add_generation_prompt", "true or"),
    (
      [ASK, BEGUN],
      {"continue_final_message": True},
      "continue_final_message",
      "false unless add_generation_prompt=false",
    ),
    ([ASK], CONTINUED, "continue_final_message", "the assistant's"),
    (
      [{"role": "user", "content": [{"type": "image_url"}]}],
      {},
      "messages[0].content",
      "content part of type 'image_url'",
    ),
  ],
)
def test_options_that_do_not_fit_are_named(
  prompt, messages, fields, param, message
):
  with pytest.raises(ApiError, match=message) as caught:
    prompt(messages, **fields)
  assert (caught.value.status, caught.value.param) == (400, param)
