"""A client of a training server that needs no SDK."""

from typing import Any

import numpy as np
import requests

from azr_jax.serving.tinker import messages

NAME = "org/tiny"


def forward_backward(model, number, ids, is_forward=False):
  """The body of a request on some sequences, for `cross_entropy`."""
  message = messages.new("ForwardBackwardRequest")
  message.model_id, message.seq_id = model, number
  message.loss_fn, message.forward_only = "cross_entropy", is_forward
  for one in ids:
    datum = message.data.add()
    tokens = np.asarray(one, "<i4")
    datum.model_input.add().encoded_text.tokens = tokens[:-1].tobytes()
    targets = datum.loss_fn_inputs["target_tokens"]
    targets.dense, targets.dtype = tokens[1:].astype("<i8").tobytes(), 2
    weights = datum.loss_fn_inputs["weights"]
    weights.dense = np.ones(len(one) - 1, "<f4").tobytes()
    weights.dtype = 1
  return message.SerializeToString()


class Client:
  """Speaks JSON with a server."""

  def __init__(self, url):
    self.url = url
    self.session = self.post("create_session", tags=[])["session_id"]

  def send(self, path, /, **body):
    return requests.post(f"{self.url}/api/v1/{path}", json=body, timeout=60)

  def post(self, path, /, **body):
    answer = self.send(path, **body)
    assert answer.status_code == 200, answer.text
    return answer.json()

  def result(self, future) -> Any:
    """The result of a future, as JSON; a protobuf message is left as it is."""
    while True:
      self.send("session_heartbeat", session_id=self.session)
      answer = self.send("retrieve_future", request_id=future["request_id"])
      if answer.status_code != 408:  # The result does not exist yet.
        break
    assert answer.status_code == 200, answer.text
    is_json = answer.headers["Content-Type"].startswith("application/json")
    return answer.json() if is_json else answer.content

  def create(self, number, rank=2, **body):
    return self.post(
      "create_model",
      **{"session_id": self.session, "model_seq_id": number}
      | {"base_model": NAME, "lora_config": {"rank": rank}}
      | body,
    )

  def model(self, number=0, rank=2):
    """The id of a new model."""
    return self.result(self.create(number, rank))["model_id"]

  def call(self, path, model, number, /, **body):
    """The result of an operation of a model."""
    body = {"model_id": model, "seq_id": number} | body
    return self.result(self.post(path, **body))

  def sampler(self, number=0, **body):
    body = body or {"base_model": NAME}
    return self.post(
      "create_sampling_session",
      **{"session_id": self.session, "sampling_session_seq_id": number},
      **body,
    )["sampling_session_id"]

  def sample(self, sampler, number=0, params=None, **body):
    chunks = {"chunks": [{"type": "encoded_text", "tokens": [3, 4, 5]}]}
    return self.send(
      "asample",
      **{"sampling_session_id": sampler, "seq_id": number, "prompt": chunks}
      | {"sampling_params": {"max_tokens": 4} | (params or {})}
      | body,
    )

  def train(self, model, number, ids):
    """Starts a pass over some sequences; returns its future."""
    answer = requests.post(
      f"{self.url}/api/v1/forward_backward",
      data=forward_backward(model, number, ids),
      headers={"Content-Type": "application/x-protobuf"},
      timeout=60,
    )
    assert answer.status_code == 200, answer.text
    return answer.json()

  def steps(self, model, first, count, ids):
    """Trains; returns the metrics of each step."""
    adam = {"learning_rate": 0.002, "eps": 1e-8}
    pending = [
      (
        self.train(model, number, ids),
        self.post(
          *("optim_step",),
          model_id=model,
          seq_id=number + 1,
          adam_params=adam,
        ),
      )
      for number in range(first, first + 2 * count, 2)
    ]
    found = []
    for scored, step in pending:
      message, body = messages.new("ForwardBackwardOutput"), self.result(scored)
      assert isinstance(body, bytes), body
      message.ParseFromString(body)
      found.append(dict(message.metrics) | self.result(step)["metrics"])
    return found
