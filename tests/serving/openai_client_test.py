"""The real `openai` client on the server, compared with the sampler itself."""

import concurrent.futures
import itertools

import httpx
import numpy as np
import openai
import pytest
from typed import instance_of

TEXT = "User: New program, predict output.\nAssistant: <think>"
PROMPT = "def f(a):\n  return"


@pytest.fixture(name="client")
def make_client(served):
  with served.client() as client:
    yield client


def test_models(client, served):
  [model] = client.models.list().data
  assert model.id == "tiny"
  assert client.models.retrieve("tiny") == model
  with pytest.raises(openai.NotFoundError, match="'other': expected 'tiny'"):
    client.models.retrieve("other")


@pytest.mark.parametrize("temperature", (0, 0.7, 1))
def test_completions_are_the_samplers_own(client, served, temperature):
  answer = client.completions.create(
    model="tiny",
    prompt=PROMPT,
    n=3,
    seed=5,
    temperature=temperature,
    max_tokens=20,
    logprobs=0,
    extra_body={"return_token_ids": True},
  )
  wanted = served.sampled(
    PROMPT, 3, 5, temperature=temperature, max_new_tokens=[20]
  )
  assert [choice.index for choice in answer.choices] == [0, 1, 2]
  for choice, want in zip(answer.choices, wanted, strict=True):
    assert choice.token_ids == want.token_ids.tolist()
    assert choice.text == want.text
    assert choice.finish_reason == want.finish_reason
    np.testing.assert_allclose(
      choice.logprobs.token_logprobs, want.logprobs, atol=1e-5
    )
    assert "".join(choice.logprobs.tokens) == want.text
    offsets = itertools.accumulate(map(len, choice.logprobs.tokens), initial=0)
    assert choice.logprobs.text_offset == list(offsets)[:-1]
  ids = served.policy.tokenizer.encode_prompt(PROMPT)
  assert answer.choices[0].prompt_token_ids == ids
  assert answer.usage.prompt_tokens == len(ids)
  tokens = sum(len(want.token_ids) for want in wanted)
  assert answer.usage.completion_tokens == tokens
  assert answer.seed == 5


def test_a_stream_has_the_same_text_in_parts(client):
  asked = dict(model="tiny", prompt=PROMPT, n=2, seed=7, max_tokens=30)
  whole = client.completions.create(**asked, logprobs=0)
  chunks = list(
    client.completions.create(
      **asked, logprobs=0, stream=True, stream_options={"include_usage": True}
    )
  )
  assert chunks[-1].usage == whole.usage and not chunks[-1].choices
  parts = [choice for chunk in chunks for choice in chunk.choices]
  assert len(parts) > 4
  for want in whole.choices:
    mine = [part for part in parts if part.index == want.index]
    assert "".join(part.text for part in mine) == want.text
    logprobs = [p for part in mine for p in part.logprobs.token_logprobs]
    assert logprobs == pytest.approx(want.logprobs.token_logprobs, abs=1e-5)
    offsets = [p for part in mine for p in part.logprobs.text_offset]
    assert offsets == want.logprobs.text_offset
    reasons = [part.finish_reason for part in mine]
    assert reasons == [None] * (len(mine) - 1) + [want.finish_reason]


def test_a_stream_has_each_token_once(client):
  asked = dict(model="tiny", prompt=PROMPT, seed=7, max_tokens=30)
  with_ids = {"return_token_ids": True}
  whole = client.completions.create(**asked, extra_body=with_ids)
  parts = client.completions.create(**asked, extra_body=with_ids, stream=True)
  ids = [one for part in parts for one in part.choices[0].token_ids]
  assert ids == whole.choices[0].token_ids


@pytest.mark.parametrize(
  "limits, tokens",
  [
    ({"max_tokens": None, "max_completion_tokens": 3}, 3),
    ({"max_tokens": 2, "max_completion_tokens": None}, 2),
    ({"max_tokens": 2, "max_completion_tokens": 3}, 3),
  ],
)
def test_the_length_of_a_chat_has_two_names(client, limits, tokens):
  body = {"model": "tiny", "messages": [{"role": "user", "content": "x = 1"}]}
  answer = client.post(
    "/chat/completions", body=body | {"seed": 0} | limits, cast_to=object
  )
  assert answer["usage"]["completion_tokens"] == tokens


def test_a_temperature_of_nearly_0_is_greedy(client):
  asked = dict(model="tiny", prompt=PROMPT, max_tokens=8)
  cold, greedy = (
    client.completions.create(**asked, temperature=value).choices[0].text
    for value in (1e-37, 0)
  )
  assert cold == greedy


def test_chats(client, served):
  messages = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "x = 1"}]},
  ]
  text = "system: Be brief.\nuser: x = 1\nassistant:"
  asked = dict(model="tiny", messages=messages, seed=2, logprobs=True)
  answer = client.chat.completions.create(
    **asked, max_completion_tokens=16, extra_body={"return_token_ids": True}
  )
  [want] = served.sampled(text, seed=2, max_new_tokens=[16])
  [choice] = answer.choices
  assert choice.message.role == "assistant"
  assert choice.message.content == want.text
  assert choice.token_ids == want.token_ids.tolist()
  assert answer.prompt_token_ids == served.policy.tokenizer.encode_prompt(text)
  tokens = choice.logprobs.content
  assert "".join(token.token for token in tokens) == want.text
  assert b"".join(bytes(token.bytes) for token in tokens).decode() == want.text
  chunks = list(
    client.chat.completions.create(**asked, max_tokens=16, stream=True)
  )
  assert chunks[0].choices[0].delta.role == "assistant"
  parts = [chunk.choices[0] for chunk in chunks]
  assert "".join(part.delta.content or "" for part in parts) == want.text
  assert parts[-1].finish_reason == choice.finish_reason
  assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}


def test_what_the_client_returns_can_be_sent_back(client):
  asked = {"role": "user", "content": "x = 1"}
  create = client.chat.completions.create
  first = create(model="tiny", messages=[asked], seed=2, max_tokens=4)
  message = first.choices[0].message
  answers = [
    create(model="tiny", messages=[asked, one, asked], seed=2, max_tokens=4)
    for one in (
      {"role": "assistant", "content": message.content},
      message,
      message.model_dump(),
      message.model_dump() | {"tool_calls": [], "annotations": []},
    )
  ]
  assert message.model_dump()["refusal"] is None
  assert len({one.choices[0].message.content for one in answers}) == 1
  assert len({one.usage.prompt_tokens for one in answers}) == 1


def test_neutral_values_of_vllm_s_fields_change_nothing(client):
  neutral = {
    "min_p": 0.0,
    "top_k": -1,
    "repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "min_tokens": 0,
    "ignore_eos": False,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": False,
    "include_stop_str_in_output": False,
    "use_beam_search": False,
    "stop_token_ids": [],
    "bad_words": [],
    "prompt_logprobs": None,
    "guided_json": None,
  }
  asked = dict(model="tiny", prompt=PROMPT, seed=3)
  texts = [
    client.completions.create(**asked, extra_body=fields).choices[0].text
    for fields in ({}, neutral)
  ]
  assert texts[0] == texts[1]


def test_prompts_as_texts_and_as_ids(client, served):
  ids = served.policy.tokenizer.encode_prompt(PROMPT)
  answers = [
    client.completions.create(model="tiny", prompt=prompt, seed=3, n=2)
    for prompt in (PROMPT, ids, [PROMPT, TEXT], [ids, ids])
  ]
  texts = [[choice.text for choice in a.choices] for a in answers]
  assert texts[1] == texts[0] and texts[2][:2] == texts[0]
  assert texts[3] == texts[0] * 2
  other = served.sampled(TEXT, 2, 3, max_new_tokens=[16])
  assert texts[2][2:] == [done.text for done in other]


def test_stop_strings_end_a_text_and_are_not_in_it(client, served):
  [free] = served.sampled(PROMPT, seed=5, max_new_tokens=[40])
  # It starts in one token and ends in another, in the middle of the text.
  middle = len(free.text) // 2
  stop = free.text[middle : middle + 3]
  want = free.text[: free.text.index(stop)]
  asked = dict(
    model="tiny", prompt=PROMPT, seed=5, max_tokens=40, stop=["~~", stop]
  )
  [choice] = client.completions.create(**asked).choices
  assert (choice.text, choice.finish_reason) == (want, "stop")
  chunks = list(client.completions.create(**asked, stream=True))
  assert "".join(chunk.choices[0].text for chunk in chunks) == want
  with_stop = client.completions.create(
    **asked, extra_body={"include_stop_str_in_output": True}
  )
  assert want + stop in with_stop.choices[0].text


def test_echo(client):
  asked = dict(model="tiny", prompt=PROMPT, seed=5)
  plain = client.completions.create(**asked).choices[0].text
  assert client.completions.create(**asked, echo=True).choices[0].text == (
    PROMPT + plain
  )
  chunks = list(client.completions.create(**asked, echo=True, stream=True))
  assert "".join(c.choices[0].text for c in chunks) == PROMPT + plain


def test_a_seed_that_was_drawn_repeats_the_answer(client):
  asked = dict(model="tiny", prompt=PROMPT, max_tokens=30)
  first, second = (client.completions.create(**asked) for _ in range(2))
  assert first.seed != second.seed
  again = client.completions.create(**asked, seed=first.seed)
  assert again.choices[0].text == first.choices[0].text


@pytest.mark.parametrize("seed", (-1, 1 << 31, (1 << 63) - 1))
def test_seeds_of_any_size(client, seed):
  asked = dict(model="tiny", prompt=PROMPT, max_tokens=30, seed=seed)
  one, two = (client.completions.create(**asked) for _ in range(2))
  assert one.choices[0].text == two.choices[0].text
  assert 0 <= one.seed < 1 << 31


@pytest.mark.slow
def test_clients_at_the_same_time_get_what_each_gets_alone(served):
  """There are more clients than slots, and every fourth disconnects."""
  seeds = range(24)
  with served.client() as client:

    def ask(seed):
      stream = client.completions.create(
        model="tiny", prompt=PROMPT, seed=seed, max_tokens=40, stream=True
      )
      text = ""
      for chunk in stream:
        text += chunk.choices[0].text
        if seed % 4 == 3:
          stream.close()
          return None
      return text

    with concurrent.futures.ThreadPoolExecutor(len(seeds)) as pool:
      texts = list(pool.map(ask, seeds))
  for seed, text in zip(seeds, texts, strict=True):
    [want] = served.sampled(PROMPT, seed=seed, max_new_tokens=[40])
    assert text is None or text == want.text


BAD = {
  "max_tokens": (0, "max_tokens=0: expected an integer from 1 to 40"),
  "n": ("two", "n='two': expected an integer"),
  "temperature": (-1, "temperature=-1: expected a number from 0 to 1e+30"),
  "top_p": (0.5, "top_p=0.5: expected 1"),
  "stop": ([""], "stop="),
  "seed": (0.5, "seed=0.5"),
  "logit_bias": ({"3": 1}, "logit_bias="),
  "presence_penalty": (1, "presence_penalty=1"),
  "prompt": ([1, 10_000], "prompt=1: expected a text, or ids from 0 to"),
  "stream_options": ({"include_usage": True}, "with stream=true"),
  "best_of": (3, "best_of=3: expected 1"),
  "min_p": (0.1, "min_p=0.1: expected 0, because the sampler has no min-p"),
  "repetition_penalty": (1.1, "repetition_penalty=1.1: expected 1"),
  "ignore_eos": (True, "ignore_eos=True: expected False"),
  "min_tokens": (3, "min_tokens=3: expected 0"),
  "skip_special_tokens": (False, "skip_special_tokens=False: expected True"),
  "tempratur": (1, "unknown field 'tempratur'"),
}


@pytest.mark.parametrize("field", BAD)
def test_a_wrong_field_is_named(client, field):
  value, expected = BAD[field]
  body = {"model": "tiny", "prompt": PROMPT} | {field: value}
  with pytest.raises(openai.BadRequestError) as caught:
    client.post("/completions", body=body, cast_to=object)
  error = instance_of(dict, caught.value.body)
  assert expected in error["message"]
  assert error["param"] == field
  assert error["type"] == "invalid_request_error"


BAD_CHATS = {
  "messages": ([], "a non-empty list"),
  "messages[0].content": ([{"role": "user", "content": 3}], "expected a text"),
  "messages[0].role": ([{"content": "x"}], "expected a name"),
  "messages[0].tool_calls": (
    [{"role": "user", "content": "x", "tool_calls": [{"id": "1"}]}],
    "tool_calls=.*expected .., because the model is given no tools",
  ),
  "messages[0].mood": (
    [{"role": "user", "content": "x", "mood": "good"}],
    "unknown field",
  ),
}


@pytest.mark.parametrize("param", BAD_CHATS)
def test_a_wrong_message_is_named(client, param):
  value, expected = BAD_CHATS[param]
  with pytest.raises(openai.BadRequestError, match=expected) as caught:
    client.chat.completions.create(model="tiny", messages=value)
  assert caught.value.param == param


def test_what_the_template_refuses_is_the_clients_error(client):
  with pytest.raises(openai.BadRequestError, match="no tools"):
    client.chat.completions.create(
      model="tiny", messages=[{"role": "tool", "content": "x"}]
    )


@pytest.mark.parametrize("value", [10**400, 1e300])
def test_a_number_that_is_too_large(client, value):
  body = {"model": "tiny", "prompt": PROMPT, "temperature": value}
  with pytest.raises(
    openai.BadRequestError, match="from 0 to 1e\\+30"
  ) as error:
    client.post("/completions", body=body, cast_to=object)
  assert error.value.param == "temperature"


def test_a_prompt_that_is_too_long(client):
  with pytest.raises(openai.BadRequestError, match="expected 1 to 48") as error:
    client.completions.create(model="tiny", prompt=PROMPT * 40)
  assert error.value.code == "context_length_exceeded"


def test_another_model(client):
  with pytest.raises(openai.NotFoundError, match="expected 'tiny'") as error:
    client.completions.create(model="gpt-4", prompt=PROMPT)
  assert error.value.code == "model_not_found"


@pytest.mark.parametrize(
  "kind, content, status",
  [
    ("text/plain", b'{"prompt": "a"}', 415),
    ("application/json", b"{", 400),
    ("application/json", b"[]", 400),
    ("application/json", b'{"prompt": "\xff"}', 400),
    ("application/json", b'{"prompt": "a", "temperature": NaN}', 400),
    ("application/json", b" " * (5 << 20), 413),
  ],
)
def test_what_is_no_request(served, kind, content, status):
  answer = httpx.post(
    f"{served.url}/completions",
    content=content,
    headers={"Content-Type": kind},
    timeout=60,
  )
  assert answer.status_code == status
  assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_no_such_path(served):
  answer = httpx.get(f"{served.url}/embeddings", timeout=60)
  assert answer.status_code == 404
  assert "GET /v1/embeddings" in answer.json()["error"]["message"]
