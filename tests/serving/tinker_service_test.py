"""A training server's bookkeeping: sessions, order, names, refusals."""

import dataclasses
import gzip
import json
import time

import pytest
import requests
import zstandard

from azr_jax.serving.tinker import messages
from tests.serving.bigrams import LIMITS, hosted
from tests.serving.tinker_client import NAME, Client


@pytest.fixture(scope="module", name="server")
def serve(tmp_path_factory):
  with hosted(tmp_path_factory.mktemp("bigrams")) as server:
    yield server


@pytest.fixture(name="client")
def connect(server):
  client = Client(server.url)
  yield client
  server.studio.hold.set()
  server.studio.error = None
  client.post(f"sessions/{client.session}/finish")
  assert not len(server.service.models) and not len(server.service.samplers)


def test_what_a_session_started_ends_with_it(client, server):
  """Tasks that wait, operations before their turn, and samples."""
  model, sampler = client.model(), client.sampler()
  server.studio.hold.clear()
  held = client.create(1)
  waiting = [
    client.create(2),
    client.post("optim_step", model_id=model, seq_id=1),
    client.post("optim_step", model_id=model, seq_id=7),
    client.sample(sampler).json(),
  ]
  cancelled = server.worker.status().cancelled
  client.post(f"sessions/{client.session}/finish")
  for future in [held, *waiting]:
    answer = client.result(future)
    assert answer["category"] == "user" and "has ended" in answer["error"]
  server.studio.hold.set()
  other = Client(server.url)
  assert other.model().startswith(other.session)
  assert "has ended" in other.result(held)["error"]  # Though it was made.
  assert other.sample(other.sampler()).status_code == 200
  assert server.worker.status().cancelled == cancelled + 1
  assert len(server.service.models) == 1
  other.post(f"sessions/{other.session}/finish")


def test_a_creation_that_fails_blocks_nobody(client, server):
  server.studio.error = ValueError("no memory")
  assert "no memory" in client.result(client.create(0))["error"]
  refused = client.send(
    "create_model",
    **{"session_id": client.session, "model_seq_id": 1, "base_model": NAME},
    lora_config={"rank": 99},
  )
  assert refused.status_code == 400 and "rank=99" in refused.text
  server.studio.error = None
  # It would be refused beside any other model.
  assert client.model(2, rank=0) == f"{client.session}:train:2"


def test_models_of_all_parameters_are_alone(client):
  client.model()
  answer = client.result(client.create(1, rank=0))
  assert "expected no other model, 1 are being trained" in answer["error"]


def test_clients_that_died_make_room(client, server):
  """A new client waits until the others give a sign of life or are dead."""
  other = Client(server.url)
  other.model()
  body = {"session_id": client.session, "base_model": NAME}
  body |= {"lora_config": {"rank": 0}}
  waits = client.post("create_model", **body, model_seq_id=0)
  assert (
    server.service.operations.futures._pending[waits["request_id"]].reply
    is None
  )
  other.post("session_heartbeat", session_id=other.session)
  assert "expected no other model" in client.result(waits)["error"]
  waits = client.post("create_model", **body, model_seq_id=1)
  seen = server.service.sessions._seen
  seen[other.session] -= 50
  assert client.result(waits)["model_id"] == f"{client.session}:train:1"
  assert other.session not in seen


def test_a_full_server_asks_clients_to_wait(client):
  for number in range(LIMITS.max_models):
    client.model(number)
  body = {"session_id": client.session, "base_model": NAME}
  refused = client.send("create_model", model_seq_id=9, **body)
  assert refused.status_code == 429 and "tinker.max_models=3" in refused.text


def test_the_oldest_snapshots_are_closed(client, server):
  model = client.model()
  names = []
  for number in range(LIMITS.max_snapshots + 2):
    body = {"sampling_session_seq_id": number, "kind": "snapshot"}
    found = client.call("save_weights_for_sampler", model, number + 1, **body)
    names.append(found["sampling_session_id"])
  answers = [client.sample(name) for name in names]
  assert [one.status_code for one in answers] == [404, 404, 200, 200]
  for one in answers[2:]:
    client.result(one.json())
  assert len(server.places.forgotten) >= 2
  assert server.places.sampled[-1].params["table"].shape == (120, 120)


def test_requests_without_a_client_sample_the_base(client, server):
  model = client.model()
  body = {"sampling_session_seq_id": 0, "kind": "snapshot"}
  found = client.call("save_weights_for_sampler", model, 1, **body)
  client.result(client.sample(found["sampling_session_id"]).json())
  assert server.places.sampled[-1] is not server.places.base
  answer = requests.post(
    f"{server.url}/v1/completions",
    json={"model": NAME, "prompt": "ab", "max_tokens": 2},
    timeout=60,
  )
  assert answer.status_code == 200
  assert server.places.sampled[-1] is server.places.base


def test_a_state_of_another_base_is_refused(client, server):
  model = client.model()
  path = client.call("save_weights", model, 1, path="one")["path"]
  body = {"session_id": client.session, "path": path, "optimizer": True}
  found = client.result(client.post("load_weights", model_seq_id=1, **body))
  assert found["type"] == "load_weights"
  folder = server.service.states.checkpoints.find(path).folder
  about = json.loads((folder / "about.json").read_text())
  (folder / "about.json").write_text(json.dumps(about | {"base_model": "x"}))
  failed = [
    client.result(client.post("load_weights", model_seq_id=2, **body)),
    client.call("load_weights", model, 2, path=path),
  ]
  for one in failed:
    assert one["error"] == "base_model='x': expected 'org/tiny'"
  refused = client.send(
    "create_sampling_session",
    session_id=client.session,
    sampling_session_seq_id=0,
    model_path=path,
  )
  assert refused.status_code == 404


def test_a_save_that_fails_keeps_the_state_of_its_name(client, server):
  model = client.model()
  path = client.call("save_weights", model, 1, path="one")["path"]
  refused = client.call("save_weights", model, 2, path="one")
  assert "expected a name that is not taken" in refused["error"]
  folder = server.service.states.checkpoints.find(path).folder
  before = (folder / "about.json").read_text()
  again = {"path": "one", "overwrite": True}
  server.studio.error = OSError("disk full")
  failed = client.call("save_weights", model, 3, **again)
  assert failed == {"error": "OSError: disk full", "category": "server"}
  assert (folder / "about.json").read_text() == before
  server.studio.error = None
  assert client.call("save_weights", model, 4, **again)["path"] == path
  assert (folder / "about.json").read_text() != before
  assert [one.name for one in folder.parent.iterdir()] == ["one"]


@pytest.mark.parametrize(
  "stop", [[1 << 40], [-1], [130], [True], [3, "a"], 7, {"a": 1}]
)
def test_stops_that_are_no_ids_are_refused(client, stop):
  future = client.sample(client.sampler(), params={"stop": stop})
  answer = client.result(future.json())
  assert answer["category"] == "user"
  assert "expected null, a text, texts, or ids" in answer["error"]


def test_an_empty_list_of_stops_ends_nothing(client, server):
  """The engine without a device writes the end token now and then."""
  sampler = client.sampler()
  lengths = {}
  for name, stop in (("own", None), ("none", [])):
    params = {"stop": stop, "max_tokens": 40, "seed": 1}
    found = client.result(
      client.sample(sampler, len(lengths), params, num_samples=30).json()
    )
    message = messages.new("SampleResponse")
    message.ParseFromString(found)
    lengths[name] = [len(one.tokens) // 4 for one in message.sequences]
  assert min(lengths["own"]) < 40
  assert set(lengths["none"]) == {40}
  assert server.worker.status().running == 0


def test_prompts_may_hold_ids_that_the_tokenizer_lacks(client):
  """A model may have more ids than its tokenizer, and may sample them."""
  sampler = client.sampler()
  for number, last in enumerate((129, 130)):
    chunk = {"type": "encoded_text", "tokens": [3, last]}
    found = client.result(
      client.sample(sampler, number, prompt={"chunks": [chunk]}).json()
    )
    assert isinstance(found, bytes) == (last < 130)


@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd"])
def test_bodies_may_be_compressed(client, encoding):
  model = client.model()
  message = messages.new("ForwardBackwardRequest")
  message.model_id, message.seq_id, message.loss_fn = model, 1, "other_loss"
  body = message.SerializeToString()
  pack = {
    "identity": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
  }[encoding]
  answer = requests.post(
    f"{client.url}/api/v1/forward_backward",
    data=pack(body),
    headers={
      "Content-Type": "application/x-protobuf",
      "Content-Encoding": encoding,
    },
    timeout=60,
  )
  assert "loss_fn='other_loss'" in client.result(answer.json())["error"]


def test_samples_do_not_time_out_while_others_train(tmp_path):
  with hosted(tmp_path, timeout_s=0.2) as server:
    client = Client(server.url)
    sampler = client.sampler()
    server.studio.hold.clear()
    held = client.create(0)
    waiting = client.sample(sampler).json()
    time.sleep(0.5)
    server.studio.hold.set()
    assert client.result(held)["type"] == "create_model"
    assert isinstance(client.result(waiting), bytes)


def test_silent_sessions_end(tmp_path):
  limits = dataclasses.replace(LIMITS, idle_s=1e-9)
  with hosted(tmp_path, limits) as server:
    client = Client(server.url)
    client.model()
    server.service.reap()
    assert not len(server.service.models)
    assert client.send("get_info", model_id="x").status_code == 404
    gone = client.send("session_heartbeat", session_id=client.session)
    assert gone.status_code == 410
