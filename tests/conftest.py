"""Test setup: CPU with eight virtual devices, and strict checks.

Every pytest process collects all modules, so tests import slow libraries such
as PyTorch themselves, and no module imports them.
"""

import atexit
import gc
import os
import pathlib
import shutil
import signal
import tempfile

import training

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = " ".join(
  (
    os.environ.get("XLA_FLAGS", ""),
    "--xla_force_host_platform_device_count=8",
    training.FAST_COMPILATION,
  )
)
# XLA's CPU client sizes its thread pool by this. Collectives over virtual
# devices wait for each other, so they starve without it on few cores.
os.environ.setdefault("NPROC", "16")
# Runs in tests compile the same small programs again and again.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # The workers inherit it.
  os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp()
  atexit.register(
    shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True
  )
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Tests do not need source locations in compiled programs.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

import hypothesis
import jax
import pytest
import shape_checks
from typed import stand_in

# On busy machines, drawing and trying examples is slow.
hypothesis.settings.register_profile(
  "busy",
  deadline=None,
  suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("busy")
# Tracing creates many objects that stay alive, and few cycles.
gc.set_threshold(200_000, 20, 100)
# The exit frees all memory, so skip the garbage collections before it.
atexit.register(gc.freeze)
# A shell ignores SIGINT for its background commands, and child processes
# inherit that. A handler is not inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)
shape_checks.install()


def pytest_collection_modifyitems(items):
  """Runs the longest tests first, so that the end does not wait for them."""
  here = pathlib.Path(__file__).parent
  items.sort(key=lambda item: item.path.parent != here)


def pytest_collection_finish():
  """Keeps later garbage collections from visiting modules and tests again."""
  gc.freeze()


@pytest.fixture(scope="session")
def one_device_mesh():
  """A mesh of a single device."""
  from azr_jax.parallel import mesh

  sizes = {"data": 1, "fsdp": 1, "tensor": 1}
  return mesh.make_mesh(sizes, jax.devices()[:1])


@pytest.fixture
def on_one_device(monkeypatch):
  """Gives whole runs in this process one device, like commands in tests."""
  training.use_devices(monkeypatch)


@pytest.fixture(scope="module")
def two_devices():
  """Gives whole runs in a module of tests two devices."""
  with pytest.MonkeyPatch.context() as patch:
    training.use_devices(patch, 2)
    yield


@pytest.fixture(scope="session")
def azr_run(tmp_path_factory):
  """The folder of an AZR run with five steps. Tests must not change it."""

  def make(folder):
    more = "--fail_on_recompile", "--profile_steps=3-4"
    training.finish(training.start(folder, 5, *more))

  return training.make_once(tmp_path_factory, "azr_run", make)


@pytest.fixture(scope="session")
def executor():
  """A pool shared by tests that only need programs to run."""
  from azr_jax.executor import Executor

  with Executor(workers=1, timeout_s=1.0, memory_mb=512) as pool:
    yield pool


@pytest.fixture
def make_context(executor):
  """Makes the context that a trainer gives a system, for this process only."""
  from azr_jax.executor.settings import ExecutorSettings
  from azr_jax.models.tokenizers import Tokenizer
  from azr_jax.parallel.hosts import Hosts
  from azr_jax.parallel.shared_jobs import SharedJobs
  from azr_jax.systems.system import Context

  def make(pool=executor, tokenizer=None):
    hosts = Hosts(60.0)
    jobs = SharedJobs(pool, hosts)
    return Context(
      seed=0,
      steps=10,
      jobs=jobs,
      executor=pool,
      hosts=hosts,
      tokenizer=tokenizer or stand_in(Tokenizer),
      sandbox=ExecutorSettings(timeout_s=1.0),
    )

  return make


@pytest.fixture
def context(make_context):
  """The context that a trainer gives a system, for this process only."""
  return make_context()


@pytest.fixture(name="strict_store")
def make_strict_store(tmp_path, monkeypatch):
  """A folder as a store whose paths cannot be opened like local paths.

  Orbax and etils support stores, so they may still get the path. Appending
  raises an error, because gcsfs would overwrite the contents. So does renaming,
  which copies and deletes one object after the other.
  """
  import sys

  from azr_jax.run import storage

  folder = storage.resolve(f"file://{tmp_path}/run")
  name_of = type(folder).__fspath__

  def refuse(path):
    caller = sys._getframe(1)
    names = caller.f_code.co_filename, getattr(caller.f_back, "f_code", "")
    # Orbax calls functions of `os.path` in threads.
    if any(part in str(names) for part in ("/etils/", "/orbax/", "/futures/")):
      return name_of(path)
    raise TypeError(f"{path} is not on this machine")

  open_any = type(folder).open

  def open_whole(path, mode="r", **options):
    if "a" in mode or "+" in mode:
      raise ValueError(f"{path}: mode={mode!r} in an object store")
    return open_any(path, mode, **options)

  rename_any = type(folder).rename

  def rename(path, target):
    if "/azr_jax/" in sys._getframe(1).f_code.co_filename:
      raise OSError(f"{path}: rename in an object store")
    return rename_any(path, target)

  monkeypatch.setattr(type(folder), "rename", rename)
  monkeypatch.setattr(type(folder), "__fspath__", refuse)
  monkeypatch.setattr(type(folder), "open", open_whole)
  return folder
