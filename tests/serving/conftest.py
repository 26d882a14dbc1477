"""A server of the smallest embedded model, with a chat template."""

import contextlib
import dataclasses
import json
import threading
from typing import Any

import openai
import pytest
import training

from azr_jax import export
from azr_jax.config import overrides
from azr_jax.configs import evaluate
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.weights import Weights
from azr_jax.serving import command
from azr_jax.serving.decoding import DecodeWorker
from azr_jax.serving.http_server import HttpServer
from azr_jax.serving.settings import LimitSettings, ServeSettings
from azr_jax.trainer import loading
from azr_jax.trainer import settings as train_settings

TEMPLATE = (
  "{% for m in messages %}{% if m.role == 'tool' %}"
  "{{ raise_exception('no tools') }}{% endif %}"
  "{{ m.role }}: {{ m.content }}\n{% endfor %}"
  "{% if add_generation_prompt %}assistant:{% endif %}"
)
# Few slots, so that clients have to wait for each other.
ROLLOUT = {
  "slots": 4,
  "prompt_buckets": (24, 48),
  "max_tokens": 40,
  "prefill_tokens": 48,
  "page_size": 16,
  "decode_chunk": 4,
  "stop_strings": (),
}


@dataclasses.dataclass
class Served:
  """A running server.

  Attributes:
    url: the URL of the API.
    policy: a policy with the same weights, which samples on its own stream.
    worker: the server's worker.
    settings: the server's settings.
    clients: the clients created so far, to be closed at the end.
  """

  url: str
  policy: Policy
  worker: DecodeWorker
  settings: ServeSettings
  clients: contextlib.ExitStack

  def client(self, **options):
    """Returns a client of the API without retries."""
    defaults: dict[str, Any] = {
      "api_key": "none",
      "max_retries": 0,
      "timeout": 300,
    }
    return self.clients.enter_context(
      openai.OpenAI(base_url=self.url, **defaults | options)
    )

  def sampled(self, text, n=1, seed=0, **options):
    """Returns what the sampler itself returns for a seed."""
    with self.policy.with_key(self.policy.key) as policy:
      prompt = policy.prompt(text)
      found = policy.sample([prompt], n, prompt_numbers=[seed], **options)
      return [done for _, _, done in sorted(found, key=lambda one: one[1])]


@contextlib.contextmanager
def serving(policy, settings, api_key="", step=None, adapters=None):
  """Serves a policy in threads of this process."""
  model = command.served_model(settings, policy, "tiny", step, adapters)
  mine = dataclasses.replace(policy, weights=Weights(policy.params))
  worker = command.make_worker(mine, settings, step or 0)
  limits = settings.serve
  server = HttpServer(worker, model, api_key, limits.read_s, limits.timeout_s)
  port = server.start("127.0.0.1", 0)
  thread = threading.Thread(target=worker.run, args=(server.deliver,))
  thread.start()
  try:
    url = f"http://127.0.0.1:{port}/v1"
    with contextlib.ExitStack() as clients:
      yield Served(url, policy, worker, settings, clients)
  finally:
    worker.end(0.0)
    thread.join()
    server.close()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
  """A model folder with a tokenizer of transformers."""
  folder = tmp_path_factory.mktemp("served") / "model"
  with pytest.MonkeyPatch.context() as patch:
    training.use_devices(patch)
    export.export(
      evaluate.get_config(), "embedded:azr-tiny", str(folder), "float32"
    )
  (folder / "tokenizer.model").unlink()
  path = folder / "tokenizer_config.json"
  config = json.loads(path.read_text()) | {"chat_template": TEMPLATE}
  path.write_text(json.dumps(config))
  return folder


@pytest.fixture(scope="session")
def settings():
  """Returns the settings of the server."""
  config = overrides.to_config(ServeSettings())
  config.rollout.update(ROLLOUT)
  return train_settings.read(ServeSettings, config)


@pytest.fixture(scope="session")
def policy(model_folder, settings):
  """Returns a policy of the model."""
  with pytest.MonkeyPatch.context() as patch:
    training.use_devices(patch)
    return loading.load_policy(settings, str(model_folder))


@pytest.fixture(scope="session")
def served(policy, settings):
  """Starts a server that the tests of this process share."""
  with serving(policy, settings) as one:
    yield one


@pytest.fixture
def serve_with(policy, settings):
  """Returns a function that starts servers with other limits."""

  def make(api_key="", **limits):
    changed = dataclasses.replace(settings, serve=LimitSettings(**limits))
    return serving(policy, changed, api_key)

  return make
