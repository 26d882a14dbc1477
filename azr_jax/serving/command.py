"""Loads a model and serves it until SIGTERM or Ctrl-C."""

import contextlib
import dataclasses
import ipaddress
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import ml_collections

from azr_jax import types
from azr_jax.cli.errors import UsageError
from azr_jax.models import adapter_stack, attention, transformer
from azr_jax.models.adapters import join
from azr_jax.parallel import memory
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.adapter_ref import AdapterRef
from azr_jax.rollout.adapter_table import AdapterTable
from azr_jax.rollout.policy import Policy
from azr_jax.run import checkpoint_reading, storage
from azr_jax.run.console import print_status
from azr_jax.serving import follow as follow_lib
from azr_jax.serving import scoring
from azr_jax.serving.decoding import DecodeWorker
from azr_jax.serving.http_server import HttpServer
from azr_jax.serving.protocol import ServedModel
from azr_jax.serving.settings import ServeSettings
from azr_jax.tasks.chats import Chat
from azr_jax.trainer import adapter_loading, loading
from azr_jax.trainer import settings as train_settings

# Environment variable that holds the clients' API key.
API_KEY = "AZR_SERVE_API_KEY"
# A probe: rendering it shows whether the chat template accepts a system
# message.
_SYSTEM = "Be brief."


@dataclasses.dataclass(frozen=True)
class Address:
  """Where the server listens, and the name and key of its API.

  Attributes:
    host: an address of this machine.
    port: the TCP port. 0 picks a free one.
    name: the model's id. "" derives it from the model spec.
    api_key: the key that clients must send. "" lets everyone in.
  """

  host: str
  port: int
  name: str
  api_key: str

  def check(self) -> None:
    """Raises UsageError if other machines could connect without a key."""
    if not self.api_key and not _is_loopback(self.host):
      raise UsageError(
        f"--host={self.host}: expected 127.0.0.1, or a key for clients in the "
        f"environment variable {API_KEY}"
      )


@memory.explained(memory.SAMPLING_KEYS)
def serve(
  config: ml_collections.ConfigDict,
  spec: str,
  address: Address,
  follows: bool = False,
  adapters: Sequence[str] = (),
) -> None:
  """Serves a model until SIGTERM or Ctrl-C.

  Args:
    config: the config of `configs/serve.py`.
    spec: a model spec, or a run folder, whose newest checkpoint is served.
    address: where to listen.
    follows: whether to switch to newer checkpoints of the run as they appear.
    adapters: NAME=FOLDER of each adapter to serve beside the model.

  Raises:
    ValueError: a config value or the model is invalid.
    OSError: the server cannot listen on the address.
  """
  address.check()
  c = train_settings.read(ServeSettings, config)
  folder = storage.resolve(spec)
  if follows:
    step = follow_lib.wait_for_step(folder, c.serve.poll_s)
  else:
    step = checkpoint_reading.newest_step(folder)
  named = find_adapters(adapters)
  policy = loading.load_policy(
    *(c, spec, step),
    keeps_to_context=True,
    stack=adapter_stack.holding([one.lora for one in named.values()]),
  )
  system = _SYSTEM if policy.tokenizer.has_chat_template else ""
  Chat(policy.tokenizer, c.serve.arguments).check(print_status, system)
  model = served_model(
    *(c, policy, address.name or model_name(spec), step),
    add_adapters(named, c, policy, spec),
  )
  print_status("compiling the sampler")
  worker = make_worker(policy, c, step or 0)
  worker.warm_up()
  server = HttpServer(
    worker, model, address.api_key, c.serve.read_s, c.serve.timeout_s
  )
  port = server.start(address.host, address.port)
  host = f"[{address.host}]" if ":" in address.host else address.host
  names = ", ".join([model.id(step or 0), *model.adapters])
  print_status(f"serving {names} at http://{host}:{port}/v1")
  follower = None
  if follows:
    follower = follow_lib.Follower(
      folder, worker, checkpoint_loader(c, spec, policy), c.serve.poll_s
    )
    follower.start()
  try:
    run_until_signal(worker, server, c.serve.drain_s)
  finally:
    if follower is not None:
      follower.stop()


def run_until_signal(
  worker: DecodeWorker, server: HttpServer, drain_s: float
) -> None:
  """Serves until SIGTERM or Ctrl-C, then closes the server.

  Args:
    worker: samples for the server.
    server: a server that has started.
    drain_s: seconds that jobs in flight may take.
  """
  try:
    with _end_on_signals(worker, drain_s):
      worker.run(server.deliver)
  finally:
    server.close()
    status = worker.status()
    print_status(
      f"server stopped: {status.answered} requests answered, "
      f"{status.cancelled} cancelled"
    )


def find_adapters(
  specs: Sequence[str],
) -> dict[str, adapter_loading.AdapterSource]:
  """Returns adapters by name.

  Args:
    specs: NAME=FOLDER of each adapter.

  Raises:
    UsageError: a name is missing or occurs twice.
    ValueError: a folder holds no adapter.
  """
  found: dict[str, adapter_loading.AdapterSource] = {}
  for spec in specs:
    name, _, folder = spec.partition("=")
    if not name or not folder or name in found:
      raise UsageError(
        f"--adapters={spec}: expected NAME=FOLDER, each name once"
      )
    found[name] = adapter_loading.find(folder)
  return found


def add_adapters(
  named: Mapping[str, adapter_loading.AdapterSource],
  settings: ServeSettings,
  policy: Policy,
  spec: str,
) -> dict[str, AdapterRef]:
  """Loads adapters into a policy's weights; returns them by name.

  Args:
    named: the adapters.
    settings: the settings with sharding rules.
    policy: a policy whose stack holds as many.
    spec: the spec of its model, with which an adapter's base is compared.

  Raises:
    ValueError: an adapter was trained on a model of another shape.
  """
  if not named:
    return {}
  engine = policy.sampler.engine
  table = AdapterTable(engine, policy.weights)
  refs = {}
  for name, one in named.items():
    if one.base and _names(one.base).isdisjoint(_names(spec)):
      print_status(
        f"warning: adapter {name} was trained on {one.base}, not on {spec}"
      )
    trained = adapter_loading.load(
      one, engine.model.config, engine.mesh, settings.sharding.rules()
    )
    refs[name] = table.add(trained, one.lora)
  return refs


def _names(spec: str) -> set[str]:
  """Returns the names by which a model spec may be known."""
  return {spec.removeprefix("hf:"), str(pathlib.Path(spec).absolute())}


def served_model(
  settings: ServeSettings,
  policy: Policy,
  name: str,
  step: int | None,
  adapters: Mapping[str, AdapterRef] | None = None,
) -> ServedModel:
  """Returns the model as clients see it.

  Args:
    policy: the model's policy.
    name: the model's id, without a step.
    step: the step of the weights. None if they are no checkpoint of a run.
    adapters: the adapters beside the model, by name.

  Raises:
    UsageError: an adapter has the model's name.
  """
  if name in (adapters or {}):
    raise UsageError(
      f"--adapters={name}: expected another name than the model's"
    )
  return ServedModel(
    name=name,
    has_steps=step is not None,
    tokenizer=policy.tokenizer,
    vocab_size=policy.sampler.engine.model.config.vocab_size,
    context=policy.sampler.engine.model.config.max_positions,
    max_prompt_tokens=settings.rollout.prompt_buckets[-1],
    max_tokens=settings.rollout.max_tokens,
    temperature=settings.rollout.temperature,
    top_p=settings.rollout.top_p,
    top_k=settings.rollout.top_k,
    max_logprobs=settings.serve.max_logprobs,
    template_arguments=settings.serve.arguments,
    created=int(time.time()),
    adapters=adapters or {},
  )


def make_worker(
  policy: Policy, settings: ServeSettings, step: int, snapshots: bool = False
) -> DecodeWorker:
  """Returns a worker that samples as a policy's first `sample` call would.

  `policy.sample(prompts, n, prompt_numbers=[seed])` returns the same tokens as
  a client gets with that seed. The worker replaces the policy's weights on a
  swap.
  """
  policy.weights.version = step
  num_top, scorer = settings.serve.max_logprobs, None
  if num_top:
    engine = policy.sampler.engine
    attend = attention.make(
      settings.model.attention,
      engine.mesh,
      settings.model.dtype,
      max_sequences_per_row=1,
    )
    scorer = scoring.Scorer(engine, num_top, attend)
  return DecodeWorker(
    policy.sampler,
    policy.weights,
    policy.call_key_data(0),
    step,
    settings.serve.max_waiting,
    scorer,
    snapshots,
  )


def checkpoint_loader(
  settings: ServeSettings, spec: str, policy: Policy
) -> Callable[[int], types.Params]:
  """Returns a function that loads the parameters of a run's step.

  Args:
    spec: the run folder.
    policy: the policy of an earlier step.
  """
  mesh = mesh_lib.make_mesh(settings.mesh.sizes())
  model = transformer.plain(policy.sampler.engine.model)
  folder = storage.resolve(spec)
  base, rules = policy.base, settings.sharding.rules()

  def load(step: int) -> types.Params:
    trained = loading.load_checkpoint(folder, model, mesh, rules, step)
    return join(base, trained)

  return load


@contextlib.contextmanager
def _end_on_signals(worker: DecodeWorker, drain_s: float) -> Iterator[None]:
  """Drains the worker on SIGTERM or Ctrl-C, and stops it on a second one."""
  count = 0

  def end(number: int, frame: object) -> None:
    nonlocal count
    del frame
    count += 1
    status = worker.status()
    under_way = status.running + status.waiting
    name = signal.Signals(number).name
    if count > 1:
      print_status(f"{name} again: cancelling {under_way} completions")
    else:
      print_status(
        f"{name}: no more requests; {under_way} completions have "
        f"{drain_s:g} seconds to finish (send it again to cancel them)"
      )
    worker.end(0.0 if count > 1 else drain_s)

  signals = (signal.SIGTERM, signal.SIGINT)
  before = [signal.signal(number, end) for number in signals]
  try:
    yield
  finally:
    for number, handler in zip(signals, before, strict=True):
      signal.signal(number, handler)


def model_name(spec: str) -> str:
  """Returns the id of a model: the last part of a folder, or the spec."""
  folder = storage.resolve(spec)
  return folder.name if folder.is_dir() else spec


def _is_loopback(host: str) -> bool:
  """Returns whether an address is reachable from this machine only."""
  try:
    return ipaddress.ip_address(host).is_loopback
  except ValueError:
    return host == "localhost"
