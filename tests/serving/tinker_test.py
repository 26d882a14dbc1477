"""A server that trains, with the tinker SDK as its client."""

import contextlib
import dataclasses
import functools
import gc
import threading

import numpy as np
import pytest
import requests
import tinker
import torch
import training
from tinker import types

from azr_jax.serving import settings as serving_settings
from azr_jax.serving.http_server import HttpServer
from azr_jax.serving.tinker import command
from azr_jax.trainer import loading

pytestmark = [
  pytest.mark.slow,
  pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
  ),
]
NAME = "org/tiny"
# Prompts and completions, as ids.
TEXTS = ([5, 9, 7, 7, 30], [8, 6, 40, 41, 42, 43, 44, 9], [3, 4])


@contextlib.contextmanager
def serving(model_folder, settings, folder):
  """Serves training in threads of this process; yields the URL."""
  with pytest.MonkeyPatch.context() as patch:
    training.use_devices(patch)
    opened = command.open_training(settings, str(model_folder), folder, NAME)
    server = HttpServer(
      *(opened.worker, opened.served, "", 30, 600), opened.routes
    )
    port = server.start("127.0.0.1", 0)
    thread = threading.Thread(target=opened.worker.run, args=(server.deliver,))
    thread.start()
    try:
      yield f"http://127.0.0.1:{port}"
    finally:
      opened.worker.end(0.0)
      thread.join()
      server.close()


@pytest.fixture(scope="module", name="limits")
def make_limits(settings):
  limits = serving_settings.TinkerSettings(
    max_rank=4, max_adapters=2, micro_rows=2, row_length=64, chunk_tokens=128
  )
  return dataclasses.replace(settings, tinker=limits)


@pytest.fixture(scope="module", name="states")
def make_states(tmp_path_factory):
  return tmp_path_factory.mktemp("tinker_states")


@pytest.fixture(scope="module", name="url")
def serve(model_folder, limits, states):
  with serving(model_folder, limits, str(states)) as url:
    yield url


@pytest.fixture(name="connect")
def make_connect(url, monkeypatch):
  """Returns a function that opens sessions of the SDK."""
  monkeypatch.setenv("TINKER_TELEMETRY", "0")
  clients = []

  def make():
    clients.append(tinker.ServiceClient(base_url=url, api_key="tml-test"))
    return clients[-1]

  yield make
  while clients:
    clients.pop().close("success").result()
  # The SDK never closes its connections.
  gc.collect()


def datum(ids, **inputs):
  """Ids whose next ids are the targets."""
  targets = ids[1:]
  inputs = inputs or {"weights": [1.0] * len(targets)}
  return types.Datum(
    model_input=types.ModelInput.from_ints(list(ids[:-1])),
    loss_fn_inputs={"target_tokens": targets} | inputs,
  )


DATA = [datum(ids) for ids in TEXTS]


def adam(rate=0.02):
  return types.AdamParams(learning_rate=rate, eps=1e-8)


def losses_of(model, steps=3, rate=0.02):
  """The losses of some pipelined steps."""
  pending = [
    (
      model.forward_backward(DATA, "cross_entropy"),
      model.optim_step(adam(rate)),
    )
    for _ in range(steps)
  ]
  for _, step in pending:
    assert step.result().metrics["skipped"] == 0
  return [scored.result().metrics["loss:sum"] for scored, _ in pending]


def test_supervised_steps_start_at_the_model(connect, policy):
  model = connect().create_lora_training_client(NAME, rank=4).result()
  scored = model.forward(DATA, "cross_entropy").result()
  got = [one["logprobs"].to_numpy() for one in scored.loss_fn_outputs]
  losses = losses_of(model)
  assert losses[0] == pytest.approx(scored.metrics["loss:sum"], rel=1e-6)
  assert losses == sorted(losses, reverse=True)
  # The base model by the OpenAI API's own scoring.
  from azr_jax.models import attention
  from azr_jax.serving import scoring

  engine = policy.sampler.engine
  attend = attention.make("auto", engine.mesh, "float32", 1)
  want = scoring.Scorer(engine, 2, attend).score(policy.params, TEXTS)
  for x, y in zip(got, want, strict=True):
    np.testing.assert_allclose(x, y.logprobs, atol=1e-5)


def test_a_step_on_samples_sees_the_sampler_s_logprobs(connect):
  model = connect().create_lora_training_client(NAME, rank=2).result()
  losses_of(model)
  sampler = model.save_weights_and_get_sampling_client().result()
  prompt = types.ModelInput.from_ints(TEXTS[0])
  params = types.SamplingParams(max_tokens=6, temperature=1.0, seed=7)
  samples, again = (
    sampler.sample(prompt, 3, params).result().sequences for _ in range(2)
  )
  assert [s.tokens for s in samples] == [s.tokens for s in again]
  assert len({tuple(s.tokens) for s in samples}) > 1
  zeros = [0.0] * (len(TEXTS[0]) - 1)
  data = [
    datum(
      [*TEXTS[0], *one.tokens],
      logprobs=[*zeros, *one.logprobs],
      advantages=[*zeros, *[1.0] * len(one.tokens)],
    )
    for one in samples
  ]
  scored = model.forward_backward(data, "importance_sampling").result()
  for one, output in zip(samples, scored.loss_fn_outputs, strict=True):
    logprobs = output["logprobs"].to_numpy()[len(zeros) :]
    np.testing.assert_allclose(logprobs, one.logprobs, atol=1e-5)
  # With all ratios 1, the loss counts the tokens.
  total = sum(len(one.tokens) for one in samples)
  assert scored.metrics["loss:sum"] == pytest.approx(-total, rel=1e-4)


def test_a_sampling_client_keeps_its_weights(connect):
  """More clients than the sampler holds adapters, used in turn."""
  model = connect().create_lora_training_client(NAME, rank=4).result()
  prompt = types.ModelInput.from_ints(TEXTS[1])
  clients, scores = [], []
  for _ in range(4):
    clients.append(model.save_weights_and_get_sampling_client().result())
    scores.append(clients[-1].compute_logprobs(prompt).result())
    losses_of(model, 1)
  assert len({tuple(one[1:]) for one in scores}) == 4
  pending = [client.compute_logprobs(prompt) for client in clients]
  for before, now in zip(scores, pending, strict=True):
    np.testing.assert_allclose(now.result()[1:], before[1:], atol=1e-6)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_chosen_ids_of_a_prompt_are_scored(connect, is_sparse):
  """Like `forward` with the same targets, by the weights of the sampler."""
  model = connect().create_lora_training_client(NAME, rank=2).result()
  losses_of(model, 1)
  sampler = model.save_weights_and_get_sampling_client().result()
  ids = TEXTS[1]
  chosen = torch.full((len(ids) - 1, 3), -1)
  chosen[2, 0], chosen[2, 1], chosen[5, 1] = 9, 0, 17
  make = types.TensorData.from_torch
  if is_sparse:
    make = functools.partial(types.TensorData.from_torch_sparse, pad_value=-1)
  found = sampler.sample(
    *(types.ModelInput.from_ints(ids), 1, types.SamplingParams(max_tokens=1)),
    target_prompt_logprobs=make(chosen),
  ).result()
  got = found.target_prompt_logprobs.to_torch()
  wide = types.Datum(
    model_input=types.ModelInput.from_ints(ids[:-1]),
    loss_fn_inputs={
      "target_tokens": types.TensorData.from_torch(chosen.clamp(min=0)),
      "weights": types.TensorData.from_torch((chosen >= 0).float()),
    },
  )
  [scored] = model.forward([wide], "cross_entropy").result().loss_fn_outputs
  want = scored["logprobs"].to_torch()
  np.testing.assert_allclose(got, want * (chosen >= 0), atol=1e-5)


def test_a_saved_state_gives_the_same_next_step(
  connect, states, limits, model_folder
):
  """A restarted server and an ordinary checkpoint reader load it, too."""
  client = connect()
  model = client.create_lora_training_client(NAME, rank=3).result()
  losses_of(model)
  path = model.save_state("third").result().path
  want = losses_of(model)
  resumed = client.create_training_client_from_state_with_optimizer(
    path
  ).result()
  assert losses_of(resumed) == want
  fresh = client.create_training_client_from_state(path).result()
  assert losses_of(fresh)[0] == want[0]
  with serving(model_folder, limits, str(states)) as url:
    other = tinker.ServiceClient(base_url=url, api_key="tml-test")
    again = other.create_training_client_from_state_with_optimizer(
      path
    ).result()
    assert losses_of(again) == want
    other.close("success").result()
  folder = states / path.removeprefix("tinker://").replace(":", "_")
  with pytest.MonkeyPatch.context() as patch:
    training.use_devices(patch)
    policy = loading.load_policy(limits, str(folder))
  sampler = client.create_sampling_client(model_path=path).result()
  greedy = types.SamplingParams(max_tokens=8, temperature=0.0)
  prompt = types.ModelInput.from_ints(TEXTS[1])
  [one] = sampler.sample(prompt, 1, greedy).result().sequences
  text = policy.tokenizer.decode(TEXTS[1])
  [(*_, done)] = policy.sample(
    [dataclasses.replace(policy.prompt(text), token_ids=tuple(TEXTS[1]))],
    temperature=0.0,
    max_new_tokens=[8],
  )
  assert list(done.token_ids) == one.tokens


def test_two_clients_get_what_each_gets_alone(connect):
  first, second = (
    connect().create_lora_training_client(NAME, rank=rank, seed=5).result()
    for rank in (2, 4)
  )
  alone = losses_of(first)
  first, third = (
    connect().create_lora_training_client(NAME, rank=2, seed=5).result()
    for _ in range(2)
  )
  together = [
    [model.forward_backward(DATA, "cross_entropy") for model in pair]
    + [model.optim_step(adam()) for model in pair]
    for pair in [(first, second)] * 3
  ]
  assert [step[0].result().metrics["loss:sum"] for step in together] == alone
  assert losses_of(third) == alone


def test_all_parameters_train_alone(connect):
  client = connect()
  model = client.create_lora_training_client(NAME, rank=0).result()
  losses = losses_of(model, rate=1e-3)
  assert losses == sorted(losses, reverse=True)
  sampler = model.save_weights_and_get_sampling_client().result()
  prompt = types.ModelInput.from_ints(TEXTS[1])
  scored = model.forward([DATA[1]], "cross_entropy").result()
  want = scored.loss_fn_outputs[0]["logprobs"].to_numpy()
  got = sampler.compute_logprobs(prompt).result()
  np.testing.assert_allclose(got[1:], want, atol=1e-5)
  base = client.create_sampling_client(base_model=NAME).result()
  assert base.compute_logprobs(prompt).result() != got
  with pytest.raises(tinker.RequestFailedError, match="has the server for it"):
    client.create_lora_training_client(NAME, rank=2).result()


@pytest.mark.parametrize(
  "loss, match",
  [("stable_reinforce", "such as importance_sampling"), ("ppo", "is missing")],
)
def test_a_bad_request_fails_alone(connect, loss, match):
  model = connect().create_lora_training_client(NAME, rank=2).result()
  with pytest.raises(tinker.RequestFailedError, match=match):
    model.forward_backward(DATA, loss).result()
  losses = losses_of(model)
  assert losses == sorted(losses, reverse=True)


def test_a_repeated_request_runs_once(connect, url):
  """A client that lost an answer sends its request again."""
  model = connect().create_lora_training_client(NAME, rank=2).result()
  losses_of(model, 1)
  body = {"model_id": model.model_id, "seq_id": 2, "adam_params": {}}
  answers = [
    requests.post(f"{url}/api/v1/optim_step", json=body, timeout=60).json()
    for _ in range(2)
  ]
  assert answers[0]["request_id"] == answers[1]["request_id"]
  before = losses_of(model, 1)
  assert losses_of(model, 1) != before


@pytest.mark.parametrize(
  "path, body, status",
  [
    ("get_info", {"model_id": 3}, 400),
    ("get_info", {"model_id": "other"}, 404),
    ("session_heartbeat", {"session_id": "other"}, 410),
    ("retrieve_future", {"request_id": "other"}, 410),
    ("create_model", [], 400),
    ("save_weights", {"model_id": "x", "seq_id": 1, "path": "../x"}, 404),
    ("weights_info", {"tinker_path": "tinker://a/../b"}, 404),
    ("asample", {"sampling_session_id": "x", "seq_id": 0}, 404),
  ],
)
def test_a_malformed_request_is_answered(url, path, body, status):
  answer = requests.post(f"{url}/api/v1/{path}", json=body, timeout=60)
  assert answer.status_code == status
  assert "expected" in answer.json()["error"]["message"]


def test_a_body_that_is_no_message_is_refused(url):
  answer = requests.post(
    f"{url}/api/v1/forward_backward",
    data=b"\x0a\xff",
    headers={"Content-Type": "application/x-protobuf"},
    timeout=60,
  )
  assert answer.status_code == 400
  assert "tinker>=0.25" in answer.json()["error"]["message"]


def test_refused_operations_do_not_block_the_next(connect):
  """A name that is no file's, and data without targets."""
  model = connect().create_lora_training_client(NAME, rank=2).result()
  with pytest.raises(tinker.RequestFailedError, match="expected letters"):
    model.save_state("a/b").result()
  bare = types.Datum(
    model_input=types.ModelInput.from_ints([3, 4]),
    loss_fn_inputs={
      "weights": types.TensorData(data=[1.0, 1.0], dtype="float32", shape=[2])
    },
  )
  with pytest.raises(tinker.RequestFailedError, match="target_tokens is miss"):
    model.forward_backward([bare], "cross_entropy").result()
  losses = losses_of(model)
  assert losses == sorted(losses, reverse=True)
