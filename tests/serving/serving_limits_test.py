"""Overload, keys, disconnecting clients, and the server's shutdown."""

import concurrent.futures
import socket
import threading
import time

import httpx
import numpy as np
import openai
import pytest

from azr_jax.serving import http_server

PROMPT = "def f(a):\n  return"
LONG = dict(model="tiny", prompt=PROMPT, max_tokens=40)


def health(served):
  return httpx.get(served.url.replace("/v1", "/health"), timeout=60)


def wait_until(condition):
  deadline = time.monotonic() + 300
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.01)


def test_a_key(serve_with):
  with serve_with(api_key="secret") as served:
    with pytest.raises(openai.AuthenticationError) as caught:
      served.client(api_key="guess").models.list()
    assert caught.value.code == "invalid_api_key"
    assert served.client(api_key="secret").models.list().data
    assert health(served).status_code == 200


def test_too_many_requests_get_429_and_the_client_comes_again(serve_with):
  with serve_with(max_waiting=2) as served:
    with pytest.raises(openai.BadRequestError, match="at most 6 choices"):
      served.client().completions.create(**LONG, n=7)

    def ask(seed, retries):
      client = served.client(max_retries=retries)
      answer = client.completions.create(**LONG, n=3, seed=seed)
      return [choice.text for choice in answer.choices]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
      once = [pool.submit(ask, seed, 0) for seed in range(8)]
      errors = [future.exception() for future in once]
      refused = [error for error in errors if error is not None]
      assert refused and len(refused) < 8
      for error in refused:
        assert isinstance(error, openai.RateLimitError)
        assert error.code == "rate_limit_exceeded"
        assert error.response.headers["Retry-After"] == "1"
      texts = list(pool.map(ask, range(8), [50] * 8))
    for seed, text in enumerate(texts):
      wanted = served.sampled(PROMPT, 3, seed, max_new_tokens=[40])
      assert text == [done.text for done in wanted]


@pytest.mark.parametrize("is_streamed", (False, True))
def test_a_client_that_goes_away_frees_its_pages(served, is_streamed, caplog):
  """The choices are running, waiting for a slot, or have just ended."""
  before = served.worker.status()
  body = LONG | {"n": 30, "stream": is_streamed}
  with served.client() as client:
    kept = client.completions.create(**LONG, stream=True, seed=1)
    with httpx.Client(timeout=60) as other:
      request = other.build_request(
        "POST", f"{served.url}/completions", json=body
      )
      if is_streamed:
        answer = other.send(request, stream=True)
        next(answer.iter_lines())
        answer.close()
      else:
        with pytest.raises(httpx.ReadTimeout):
          other.post(f"{served.url}/completions", json=body, timeout=0.3)
    text = "".join(chunk.choices[0].text for chunk in kept)
  wait_until(lambda: served.worker.status().cancelled > before.cancelled)
  after = served.worker.status()
  assert after.cancelled == before.cancelled + 1
  assert after.answered == before.answered + 1
  assert (after.running, after.waiting) == (0, 0)
  assert after.free_pages == served.policy.sampler.engine.num_pages
  [want] = served.sampled(PROMPT, seed=1, max_new_tokens=[40])
  assert text == want.text
  assert not caplog.records


def test_a_client_that_has_gone_is_no_bug(served, caplog, monkeypatch):
  async def gone(*_):
    raise ConnectionResetError("Cannot write to closing transport")

  monkeypatch.setattr(http_server, "_stream", gone)
  with served.client() as client, pytest.raises(openai.BadRequestError):
    client.completions.create(**LONG, stream=True)
  assert not caplog.records


def test_a_request_that_takes_too_long(serve_with):
  with serve_with(timeout_s=0.05) as served:
    with pytest.raises(openai.InternalServerError, match="0.05 sec") as caught:
      served.client().completions.create(**LONG, n=40)
    assert (caught.value.status_code, caught.value.code) == (503, "timeout")
    wait_until(lambda: served.worker.status().cancelled == 1)
    assert served.worker.status().waiting == 0


def connect(served):
  """Returns a connection that has sent nothing yet."""
  url = httpx.URL(served.url)
  return socket.create_connection((url.host, url.port), timeout=60)


def received(connection):
  """Returns everything received until the server closes the connection."""
  with connection:
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


HEAD = (
  b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
  b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n"
)


def test_connections_without_a_whole_request_are_closed(serve_with):
  with serve_with(read_s=0.3) as served:
    nothing, half, body = (connect(served) for _ in range(3))
    half.sendall(HEAD[:30])
    body.sendall(HEAD + b'{"prompt":')
    assert received(nothing) == received(half) == b""
    status, _, rest = received(body).partition(b"\r\n")
    assert status == b"HTTP/1.1 408 Request Timeout"
    assert b"was not sent in 0.3 s (serve.read_s)" in rest
    assert served.client().models.list().data


def test_a_request_that_is_no_http_is_one_line_of_the_log(served, caplog):
  connection = connect(served)
  connection.sendall(b"GET /v1/models HTTP/1.1\r\nno \x1b[31m header\r\n\r\n")
  assert b" 400 Bad Request" in received(connection)
  [record] = caplog.records
  assert record.exc_info is None
  assert record.getMessage().startswith("Error handling request from 127.0.0.1")
  assert record.getMessage().isprintable()


def test_the_end_lets_requests_finish_and_takes_no_more(serve_with):
  with serve_with() as served, served.client() as client:
    stream = client.completions.create(**LONG, stream=True, seed=1)
    first = next(stream).choices[0].text
    served.worker.end(300.0)
    with pytest.raises(openai.InternalServerError) as caught:
      client.completions.create(**LONG)
    assert (caught.value.status_code, caught.value.code) == (
      503,
      "server_ending",
    )
    text = first + "".join(chunk.choices[0].text for chunk in stream)
    [want] = served.sampled(PROMPT, seed=1, max_new_tokens=[40])
    assert text == want.text


def test_the_end_cancels_what_goes_on_too_long(serve_with):
  with serve_with() as served, served.client() as client:
    stream = client.completions.create(**LONG, n=40, stream=True)
    next(stream)
    served.worker.end(0.0)
    with pytest.raises(openai.APIError, match="the server has ended"):
      list(stream)
    assert health(served).status_code == 503


def test_a_signal_may_come_while_the_worker_is_busy(serve_with):
  """The handler runs in the worker's thread, whatever lock that holds."""
  with serve_with() as served:
    worker = served.worker
    handled = threading.Event()

    def interrupted():
      with worker._open.lock:
        worker.status()
        worker.end(0.0)
      handled.set()

    threading.Thread(target=interrupted, daemon=True).start()
    assert handled.wait(60)


def test_a_client_that_goes_away_before_it_is_scored(served):
  """More choices end at once than are scored between two calls."""
  worker = served.worker
  score, is_cancelled = worker._scorer.score, threading.Event()
  client = served.client()

  def slow(*args):
    if any(job.n == 40 for job, *_ in worker._unscored._waiting):
      is_cancelled.wait(60)
    return score(*args)

  asked = LONG | {"max_tokens": 2, "temperature": 0}
  before = worker.status()
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr("azr_jax.serving.decoding._MAX_SCORED", 1)
    patch.setattr(worker._scorer, "score", slow)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
      kept = pool.submit(client.completions.create, **asked, n=6, logprobs=2)
      with pytest.raises(httpx.ReadTimeout):
        httpx.post(
          f"{served.url}/completions",
          json=asked | {"n": 40, "logprobs": 1},
          timeout=3,
        )
      is_cancelled.set()
      answer = kept.result(120)
  assert len(answer.choices) == 6
  first, *others = (choice.logprobs.token_logprobs for choice in answer.choices)
  for one in others:
    np.testing.assert_allclose(first, one, atol=1e-5)
  wait_until(lambda: worker.status().running + worker.status().waiting == 0)
  assert worker.status().cancelled == before.cancelled + 1
