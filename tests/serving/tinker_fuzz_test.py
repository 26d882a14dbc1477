"""Malformed, old, huge and repeated requests to a training server."""

import random

import pytest
import requests

from tests.serving import tinker_client
from tests.serving.bigrams import hosted
from tests.serving.tinker_client import NAME, Client

IDS = ([5, 9, 7], [3, 4])
# A value of each JSON type, and some that fit a type but no limit.
VALUES = (
  *(None, True, 0, -1, 1 << 31, 1 << 70, 0.5, 1e300, "", "x", "tinker://a/b"),
  *("\x00\ud800", [], [1], [None], {}, {"a": {}}, [[[]]], "x" * 5000),
)
_NUMBER = 1 << 20
# Endpoint -> the fields of a good request.
BODIES = {
  "client/config": {"sdk_version": "0.38.0"},
  "client/dynamic_config": {},
  "create_session": {"tags": [], "user_metadata": {}},
  "session_heartbeat": {"session_id": "?"},
  "telemetry": {"events": []},
  "create_model": {
    **{"session_id": "?", "model_seq_id": 7, "base_model": NAME},
    "lora_config": {"rank": 2, "seed": 1},
  },
  "get_info": {"model_id": "?"},
  "optim_step": {
    "model_id": "?",
    "seq_id": _NUMBER,
    "adam_params": {"eps": 1.0},
  },
  "save_weights": {"model_id": "?", "seq_id": _NUMBER, "path": "a"},
  "save_weights_for_sampler": {
    **{"model_id": "?", "seq_id": _NUMBER, "sampling_session_seq_id": 1},
  },
  "load_weights": {
    **{"session_id": "?", "model_seq_id": 1, "path": "tinker://a/weights/b"},
    "optimizer": True,
  },
  "weights_info": {"tinker_path": "tinker://a/weights/b"},
  "create_sampling_session": {
    **{"session_id": "?", "sampling_session_seq_id": 0, "base_model": NAME},
  },
  "asample": {
    **{"sampling_session_id": "?", "seq_id": _NUMBER, "num_samples": 1},
    "prompt": {"chunks": [{"type": "encoded_text", "tokens": [3, 4]}]},
    "sampling_params": {"max_tokens": 2, "stop": [5], "seed": 1},
    "target_prompt_logprobs": {"data": [1], "shape": [1, 1]},
  },
  "retrieve_future": {"request_id": "?"},
}


@pytest.fixture(scope="module", name="server")
def serve(tmp_path_factory):
  with hosted(tmp_path_factory.mktemp("bigrams")) as server:
    yield server


@pytest.fixture(name="client")
def connect(server, caplog):
  client = Client(server.url)
  yield client
  failures = [one for one in caplog.records if "failed" in one.message]
  assert not failures, failures[0].exc_info
  # Whatever was asked, the server still trains.
  client.post(f"sessions/{client.session}/finish")
  after = Client(server.url)
  losses = [one["loss:sum"] for one in after.steps(after.model(), 1, 2, IDS)]
  assert losses[1] < losses[0]
  after.post(f"sessions/{after.session}/finish")


def changed(body, value):
  """The body with each field in turn, also inside others, set to a value."""
  for name, field in body.items():
    yield body | {name: value}
    if isinstance(field, dict):
      for inner in changed(field, value):
        yield body | {name: inner}
  yield {}
  yield body | {"unknown": value}


def assert_clear(answer):
  """A request is answered, or refused in a line; it ends no thread."""
  assert answer.status_code < 500, answer.text
  if answer.status_code not in (200, 408):
    message = answer.json()["error"]["message"]
    assert "\n" not in message
    assert any(one in message for one in ("expected", "not JSON")), message


@pytest.mark.parametrize(
  "values",
  [VALUES[::4], pytest.param(VALUES, marks=pytest.mark.slow)],
  ids=["some", "all"],
)
@pytest.mark.parametrize("path", BODIES)
def test_fields_of_other_types_are_refused_by_name(client, path, values):
  model, sampler = client.model(), client.sampler()
  known = {
    **{"session_id": client.session, "model_id": model},
    **{"sampling_session_id": sampler, "request_id": "none"},
  }
  body = {k: known.get(k, v) for k, v in BODIES[path].items()}
  number = 1
  for value in values:
    for other in changed(body, value):
      # An operation of a model waits for all earlier numbers.
      is_known = other.get("model_id") == body.get("model_id")
      if is_known and other.get("seq_id") == _NUMBER:
        other = other | {"seq_id": number}
      # A session that does not end its models would fill the server.
      if path == "create_model" and other.get("session_id") == client.session:
        client.post(f"sessions/{client.session}/finish")
        client = Client(client.url)
        other = other | {"session_id": client.session}
      answer = client.send(path, **other)
      assert_clear(answer)
      if answer.status_code == 200 and other.get("seq_id") == number:
        number += 1
        future = answer.json()["request_id"]
        found = client.send("retrieve_future", request_id=future)
        assert_clear(found)
        if found.headers["Content-Type"].startswith("application/json"):
          assert found.json().get("category", "user") == "user", found.text


def test_the_bodies_of_old_versions_are_refused_with_the_version(client):
  """Before 0.25, `forward_backward` was JSON, and `forward` had its path."""
  old = {
    "model_id": client.model(),
    "seq_id": 1,
    "forward_backward_input": {"data": [], "loss_fn": "cross_entropy"},
  }
  answer = client.send("forward_backward", **old)
  assert answer.status_code == 400 and "tinker>=0.25" in answer.text
  assert client.send("forward", **old).status_code == 404


def test_bytes_that_are_no_message_are_refused(client):
  model = client.model()
  draw = random.Random(0)
  for _ in range(100):
    number = draw.randrange(1, 60)
    data = bytearray(tinker_client.forward_backward(model, number, IDS))
    for _ in range(draw.randrange(1, 4)):
      data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    if draw.random() < 0.3:
      data = data[: draw.randrange(len(data))]
    answer = requests.post(
      f"{client.url}/api/v1/forward_backward",
      data=bytes(data),
      headers={"Content-Type": "application/x-protobuf"},
      timeout=60,
    )
    assert_clear(answer)


def test_a_huge_body_is_refused(client):
  answer = requests.post(
    f"{client.url}/api/v1/forward_backward",
    data=bytes((64 << 20) + 1),
    headers={"Content-Type": "application/x-protobuf"},
    timeout=60,
  )
  assert answer.status_code == 413 and "64 MiB" in answer.text


def test_replayed_operations_run_once(client, server):
  model = client.model()
  first, again = (client.train(model, 1, IDS) for _ in range(2))
  assert first == again
  # Another operation of the same number gets the result of the first.
  step = client.post("optim_step", model_id=model, seq_id=1)
  assert step["request_id"] == first["request_id"]
  [metrics] = client.steps(model, 2, 1, IDS)
  # The gradients of two passes, not of three.
  alone = client.steps(client.model(1), 1, 1, IDS)[0]
  assert metrics["grad_norm"] == pytest.approx(2 * alone["grad_norm"])
  # An answered operation is forgotten after a while, its number is not.
  server.service.operations.futures.drop(first["request_id"])
  late = client.result(client.train(model, 1, IDS))
  assert late["error"] == "seq_id=1: expected 4 or a later one"
