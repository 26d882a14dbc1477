"""Log-probabilities of prompts and likeliest tokens, against transformers."""

import re

import numpy as np
import openai
import pytest
import training
import transformers

from azr_jax.models import attention
from azr_jax.serving import scoring, token_logprobs
from azr_jax.serving.token_logprobs import Likely, TokenLogprob
from azr_jax.trainer import loading

PROMPT = "def f(a):\n  return a"
OTHER = "x = [1, 2]\n"


@pytest.fixture(name="client")
def make_client(served):
  with served.client() as client:
    yield client


@pytest.fixture(name="log_softmax", scope="module")
def make_log_softmax(model_folder):
  """Returns a function from ids to transformers' distribution after each."""

  import torch

  model = transformers.AutoModelForCausalLM.from_pretrained(
    model_folder, dtype=torch.float32
  )

  def of(ids):
    with torch.no_grad():
      logits = model(torch.tensor([ids])).logits[0]
    return torch.log_softmax(logits, dim=-1).numpy()

  return of


@pytest.mark.parametrize("prompts", ([PROMPT], [OTHER, PROMPT, PROMPT * 3]))
def test_an_echoed_prompt_has_the_scores_of_transformers(
  client, served, log_softmax, prompts
):
  """Evaluation harnesses score the choices of a question this way."""
  tokenizer = served.policy.tokenizer
  ids = [tokenizer.encode_prompt(prompt) for prompt in prompts]
  answer = client.completions.create(
    model="tiny",
    prompt=ids,
    temperature=0,
    max_tokens=2,
    logprobs=3,
    echo=True,
    extra_body={"return_token_ids": True},
  )
  for choice, prompt_ids in zip(answer.choices, ids, strict=True):
    whole = [*prompt_ids, *choice.token_ids]
    wanted = log_softmax(whole)
    shown = choice.logprobs
    assert len(shown.tokens) == len(whole)
    assert shown.token_logprobs[0] is shown.top_logprobs[0] is None
    assert "".join(shown.tokens) == choice.text
    for index in range(1, len(whole)):
      row = wanted[index - 1]
      logprob, top = shown.token_logprobs[index], shown.top_logprobs[index]
      assert logprob == pytest.approx(row[whole[index]], abs=1e-4)
      best = np.sort(row)[:-4:-1]
      np.testing.assert_allclose(
        sorted(top.values())[::-1][:3], best, atol=1e-4
      )
      # A harness considers the token greedy if these are equal.
      is_greedy = int(row.argmax()) == whole[index]
      assert (logprob == max(top.values())) == is_greedy


def test_a_greedy_choice_is_the_likeliest_token_of_each_place(client, served):
  asked = dict(model="tiny", prompt=PROMPT, temperature=0, max_tokens=12)
  [choice] = client.completions.create(**asked, logprobs=1).choices
  [want] = served.sampled(PROMPT, temperature=0, max_new_tokens=[12])
  shown = choice.logprobs
  assert "".join(shown.tokens) == choice.text == want.text
  np.testing.assert_allclose(shown.token_logprobs, want.logprobs, atol=1e-4)
  for piece, logprob, top in zip(
    shown.tokens, shown.token_logprobs, shown.top_logprobs, strict=True
  ):
    assert top == {piece: logprob}


def test_tokens_of_one_text_are_told_apart():
  """The sampled token keeps its text, even if another one is likelier."""
  top = (Likely(5, " a", -0.1), Likely(6, "b", -2.0), Likely(9, "b", -3.0))
  drawn = TokenLogprob(7, " a", -4.0, top)
  last = TokenLogprob(9, "b", -3.0, top)
  shown = token_logprobs.completion([drawn, last], 0)["top_logprobs"]
  assert shown == [
    {"token_id:5": -0.1, "b": -2.0, "token_id:9": -3.0, " a": -4.0},
    {" a": -0.1, "token_id:6": -2.0, "b": -3.0},
  ]
  first, second = token_logprobs.chat([drawn, last])["content"]
  assert [(one["token"], one["logprob"]) for one in first["top_logprobs"]] == [
    ("token_id:5", -0.1),
    ("b", -2.0),
    ("token_id:9", -3.0),
  ]
  assert {one["token"] for one in second["top_logprobs"]} == {*shown[1]}
  assert first["top_logprobs"][0]["bytes"] == first["bytes"] == [*b" a"]


def test_a_chat_has_its_likeliest_tokens(client, log_softmax):
  answer = client.chat.completions.create(
    model="tiny",
    messages=[{"role": "user", "content": "x = 1"}],
    seed=3,
    max_tokens=8,
    logprobs=True,
    top_logprobs=4,
    extra_body={"return_token_ids": True},
  )
  [choice] = answer.choices
  wanted = log_softmax([*answer.prompt_token_ids, *choice.token_ids])
  first = len(answer.prompt_token_ids) - 1
  for index, token in enumerate(choice.logprobs.content):
    row = wanted[first + index]
    assert token.logprob == pytest.approx(
      row[choice.token_ids[index]], abs=1e-4
    )
    np.testing.assert_allclose(
      [one.logprob for one in token.top_logprobs],
      np.sort(row)[:-5:-1],
      atol=1e-4,
    )


@pytest.mark.parametrize(
  "fields, expected",
  [
    ({"logprobs": 21}, "logprobs=21: expected an integer from 0 to 20"),
    ({"logprobs": 1, "stream": True}, "stream=True: expected false"),
    ({"logprobs": 0, "echo": True, "stream": True}, "stream=True: expected"),
  ],
)
def test_what_is_not_scored_is_refused(client, fields, expected):
  with pytest.raises(openai.BadRequestError, match=expected):
    client.completions.create(model="tiny", prompt=PROMPT, **fields)


def test_a_server_may_score_nothing(serve_with):
  with serve_with(max_logprobs=0) as one, one.client() as client:
    asked = dict(model="tiny", prompt=PROMPT)
    with pytest.raises(openai.BadRequestError, match="serve.max_logprobs"):
      client.completions.create(**asked, logprobs=1)
    with pytest.raises(openai.BadRequestError, match="serve.max_logprobs"):
      client.completions.create(**asked, logprobs=0, echo=True)
    [choice] = client.completions.create(**asked, logprobs=0).choices
    assert choice.logprobs.top_logprobs is None


def test_a_device_has_the_logits_of_its_own_rows(
  model_folder, settings, monkeypatch
):
  monkeypatch.setattr(scoring, "_CHUNK_TOKENS", 7)
  with pytest.MonkeyPatch.context() as patch:
    training.use_devices(patch, 4)
    policy = loading.load_policy(settings, str(model_folder))
  engine = policy.sampler.engine
  attend = attention.make("auto", engine.mesh, "float32", 1)
  scorer = scoring.Scorer(engine, 2, attend)
  rows = engine.shapes.prefill_rows(24)
  tokens = np.zeros((rows, 24), np.int32)
  program = scorer._score.lower(
    policy.params, tokens, tokens, tokens.astype(bool), np.zeros(rows, np.int32)
  ).compile()
  vocabulary = engine.model.config.vocab_size
  logits = re.findall(rf"\[(\d+),(\d+),{vocabulary}\]", str(program.as_text()))
  assert {*logits} == {(str(rows // 4), str(7 * 4 // rows))}


@pytest.mark.parametrize("devices, chunk", [(1, 256), (1, 7), (2, 7)])
def test_scores_do_not_depend_on_what_else_is_scored(
  model_folder, settings, monkeypatch, devices, chunk
):
  """There are more sequences than rows, with several lengths."""
  monkeypatch.setattr(scoring, "_CHUNK_TOKENS", chunk)
  with pytest.MonkeyPatch.context() as patch:
    training.use_devices(patch, devices)
    policy = loading.load_policy(settings, str(model_folder))
  engine = policy.sampler.engine
  attend = attention.make("auto", engine.mesh, "float32", 1)
  scorer = scoring.Scorer(engine, 2, attend)
  rng = np.random.default_rng(0)
  # The sampler caches all tokens of a sequence except the last.
  most = engine.shapes.longest + 1
  sequences = [
    rng.integers(0, 200, size).tolist() for size in (1, 5, 24, 25, 60, most)
  ]
  params = policy.params
  together = scorer.score(params, sequences * 2)
  for index, ids in enumerate(sequences):
    [alone] = scorer.score(params, [ids])
    assert alone.logprobs.shape == (len(ids) - 1,)
    for one in (together[index], together[index + len(sequences)]):
      np.testing.assert_allclose(alone.logprobs, one.logprobs, atol=1e-5)
      np.testing.assert_array_equal(alone.top_ids, one.top_ids)
    # Only the last tokens, as for a choice without its prompt.
    [last] = scorer.score(params, [ids], [max(0, len(ids) - 3)])
    np.testing.assert_allclose(
      last.logprobs[-3:], alone.logprobs[-3:], atol=1e-5
    )
  ids, scores = sequences[-2], together[len(sequences) - 2]
  # Its own next tokens, the likeliest ones, and nothing.
  likeliest = scores.top_ids[:, 0]
  chosen = np.stack([ids[1:], likeliest, np.full(len(likeliest), -1)], 1)
  chosen[3, 0] = -1
  wanted = np.stack([scores.logprobs, scores.top_logprobs[:, 0]], 1)
  wanted[3, 0] = 0
  got = scorer.score_targets(params, ids, chosen.astype(np.int32))
  np.testing.assert_allclose(got[:, :2], wanted, atol=1e-5)
  np.testing.assert_array_equal(got[:, 2], 0)


def test_a_choice_may_be_as_long_as_there_is_room(client, served):
  """The sequence is one token longer than the longest cache."""
  rollout = served.settings.rollout
  size = rollout.prompt_buckets[-1]
  ids = (served.policy.tokenizer.encode_prompt(PROMPT) * size)[:size]
  for seed in range(40):
    answer = client.completions.create(
      model="tiny",
      prompt=ids,
      max_tokens=rollout.max_tokens,
      seed=seed,
      logprobs=1,
    )
    [choice] = answer.choices
    assert len(choice.logprobs.tokens) == answer.usage.completion_tokens
    if choice.finish_reason == "length":
      return
  raise AssertionError("no choice reached its limit")
