"""Weight swaps: when new weights are used, and who still gets the old ones."""

import concurrent.futures
import json
import threading
import types
from typing import Any, cast

import httpx
import openai
import pytest

from azr_jax.serving import follow
from azr_jax.serving.decoding import DecodeWorker
from azr_jax.trainer import loading
from tests.serving.conftest import serving

PROMPT = "def f(a):\n  return"
LONG = dict(model="tiny", prompt=PROMPT, max_tokens=40)


@pytest.fixture
def params(policy, settings, model_folder):
  """Returns weights to swap in, equal to the model's to keep the tokens."""
  mesh = policy.sampler.engine.mesh
  return loading.load_model(settings, str(model_folder), mesh).params


@pytest.fixture
def stepped(policy, settings):
  """Starts a server at step 3."""
  with serving(policy, settings, step=3) as one:
    yield one


def test_clients_of_a_step_do_not_keep_newer_weights_away(stepped, params):
  with stepped.client() as client:
    asked = LONG | {"model": "tiny@3"}
    stream = client.completions.create(**asked, stream=True)
    next(stream)
    in_use = stepped.worker.swap(params, 5)
    # This command is queued before the next request's.
    with pytest.raises(openai.NotFoundError, match="expected step 5"):
      while not in_use.is_set():
        client.completions.create(**asked)
    list(stream)
    assert in_use.wait(60) and stepped.worker.step == 5


def test_clients_of_waiting_weights_wait_for_them(stepped, params):
  """One of the clients disconnects before the weights are used."""
  client, is_over = stepped.client(), threading.Event()
  fetch = stepped.worker._stream.fetch

  def fetch_when_over():
    is_over.wait(60)
    fetch()

  stream = client.completions.create(
    **LONG | {"model": "tiny@3", "n": 12}, stream=True
  )
  next(stream)
  stepped.worker._stream.fetch = fetch_when_over
  in_use = stepped.worker.swap(params, 5)
  newer = LONG | {"model": "tiny@5", "seed": 1}
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    kept = pool.submit(client.completions.create, **newer)
    with pytest.raises(httpx.ReadTimeout):
      httpx.post(f"{stepped.url}/completions", json=newer, timeout=0.2)
    assert not in_use.is_set() and not kept.done()
    is_over.set()
    list(stream)
    answer = kept.result(60)
  assert answer.model == "tiny@5" and answer.steps == [5]
  [want] = stepped.sampled(PROMPT, seed=1, max_new_tokens=[40])
  assert answer.choices[0].text == want.text
  assert stepped.worker.status().cancelled == 1


def test_a_stream_names_the_step_of_its_tokens_from_the_first(stepped, params):
  with httpx.Client(timeout=60) as client:
    first = stepped.client().completions.create(
      **LONG | {"model": "tiny@3", "n": 12}, stream=True
    )
    next(first)
    in_use = stepped.worker.swap(params, 5)
    # The request is held until then, so it is sent while step 3 is served.
    body = LONG | {"model": "tiny@5", "stream": True, "echo": True}
    with (
      client.stream("POST", f"{stepped.url}/completions", json=body) as answer,
      concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
      pool.submit(list, first)
      lines = [line for line in answer.iter_lines() if "steps" in line]
    assert in_use.is_set()
  steps = [json.loads(line.removeprefix("data: "))["steps"] for line in lines]
  assert len(steps) > 1 and steps == [[5]] * len(steps)


@pytest.mark.parametrize("name", ["tiny@4", "tiny@03", "tiny@" + "9" * 5000])
def test_other_steps_are_not_served(stepped, name):
  with pytest.raises(openai.NotFoundError, match="expected"):
    stepped.client().completions.create(**LONG | {"model": name})


def test_the_weights_that_sampled_the_last_tokens_score_them(
  policy, settings, params
):
  """This includes choices that ended in the last call before the swap."""
  scored = []
  with serving(policy, settings, step=3) as served:
    worker = served.worker
    scorer: Any = worker._scorer
    fetch, score, swaps = worker._stream.fetch, scorer.score, []

    def fetch_then_swap():
      fetch()
      if worker._stream._ended and not swaps:
        swaps.append(worker.swap(params, 5))

    def score_and_note(*args):
      scored.append(worker.step)
      return score(*args)

    worker._stream.fetch = fetch_then_swap
    scorer.score = score_and_note
    answer: Any = served.client().completions.create(**LONG, logprobs=2)
    assert swaps[0].wait(60)
  assert scored == [3] and answer.steps == [3]


class Worker:
  """A worker at step 1 whose swaps take effect immediately."""

  def __init__(self):
    self.step, self.swapped = 1, threading.Event()

  def swap(self, params, step):
    self.step, is_done = step, threading.Event()
    is_done.set()
    self.swapped.set()
    return is_done


def test_following_goes_on_after_any_error(tmp_path, monkeypatch, capsys):
  """The run's newest step cannot be read at first."""
  monkeypatch.setattr(
    follow, "checkpoint_reading",
    types.SimpleNamespace(
      finished_steps=lambda folder: {2}, newest_step=lambda folder: 2
    ),
  )  # fmt: skip  # An object and its attribute share a line.
  errors = [KeyError("layers"), OSError("no such\nfile"), ValueError("x")]
  monkeypatch.setattr(follow, "_MAX_PAUSE_S", 0.05)

  def load(step):
    if errors:
      raise errors.pop(0)
    return {"step": step}

  worker = Worker()
  follower = follow.Follower(tmp_path, cast(DecodeWorker, worker), load, 0.01)
  follower.start()
  assert worker.swapped.wait(60)
  follower.stop()
  follower._thread.join()
  out = capsys.readouterr().err
  assert "next poll in 0.02 s: KeyError: 'layers'" in out
  assert "next poll in 0.04 s: OSError: no such file" in out
  assert "next poll in 0.05 s: ValueError: x" in out
  assert "now serving step 2 instead of step 1" in out
