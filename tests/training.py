"""Training runs for tests: as commands, shared, and interrupted."""

import collections
import fcntl
import gzip
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[1]
# The first jaxlib whose XLA only has fusion emitters. Without them it compiles
# in a third of the time. XLA ends the process on an unknown flag.
_ONE_FUSION_EMITTER = (0, 11)


def _fast_compilation():
  """XLA flags for programs that compile once and run briefly."""
  options = [
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
  ]
  version = importlib.metadata.version("jaxlib").split(".")
  if tuple(map(int, version[:2])) < _ONE_FUSION_EMITTER:
    options.append("--xla_cpu_use_fusion_emitters=false")
  return " ".join(options)


# Tests spend most of their time compiling.
FAST_COMPILATION = _fast_compilation()
# Few prompts, programs and rows, so that a step takes about a second. Every
# trajectory fits into a row, so all steps have the same number of rows.
AZR = {
  "azr.prompts": 2,
  "azr.seed_factor": 1,
  "azr.seed_rounds": 2,
  "azr.learnability_samples": 2,
  "rollout.slots": 16,
  "rollout.prompt_buckets": (128,),
  "rollout.page_size": 120,
  "learner.micro_rows": 8,
  "learner.max_micro_batches": 2,
  "train.save_every": 2,
  "evaluation.every": 0,
  "train.style": "first_word",
}


def needs(package, extra):
  """Skips the calling module if an optional package is not installed.

  Nothing is imported: every pytest process collects all modules, and few of
  them run a module's tests.
  """
  if importlib.util.find_spec(package) is None:
    reason = f"needs the extra {extra}"
    pytest.skip(reason, allow_module_level=True)


def use_devices(patch, count=1):
  """Limits the meshes of this process to its first `count` devices."""
  # Imported here, because this module loads before JAX may be imported.
  import jax

  from azr_jax.parallel import mesh

  make_mesh, some = mesh.make_mesh, jax.devices()[:count]

  def make(shape, devices=None, *section):
    return make_mesh(shape, devices or some, *section)

  patch.setattr(mesh, "make_mesh", make)


def flags(config, changes):
  """The flags of a config, as FILE:VARIANT, with changed values."""
  changed = [f"--config.{key}={value}" for key, value in changes.items()]
  return (f"--config={config}", *changed)


AZR_FLAGS = flags("configs/azr.py:tiny", AZR)


def environment():
  """The environment of a command: one device, the tests' compilation cache.

  Many runs share the cache, so the number of steps matters most.
  """
  flags = FAST_COMPILATION.replace("_level=0", "_level=1")
  return os.environ | {"XLA_FLAGS": flags}


def start(workdir, steps, *more, config=AZR_FLAGS):
  """Starts `azr_jax.train` as a user would."""
  return subprocess.Popen(
    [sys.executable, "-m", "azr_jax.train", *config, f"--workdir={workdir}"]
    + [f"--config.train.steps={steps}", *more],
    cwd=ROOT,
    env=environment(),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def finish(process):
  """Waits for a command to end, and asserts that it succeeded."""
  output, _ = process.communicate(timeout=400)
  assert process.returncode == 0, output[-3000:]


def train_on_two_processes(workdir, config):
  """Trains with two processes, whose samplers take different prompts."""
  command = [sys.executable, "launch/local_multiprocess.py"]
  command += ["--devices=1", "--processes=2", "--", "azr_jax.train"]
  mesh = {"mesh.fsdp": 2, "rollout.mesh.data": 2}
  mesh |= {"rollout.mesh.fsdp": 1, "rollout.mesh.tensor": 1}
  subprocess.run(
    [*command, *config, *(f"--config.{k}={v}" for k, v in mesh.items())]
    + [f"--workdir={workdir}"],
    cwd=ROOT,
    env=environment(),
    check=True,
  )


def train_with_kills(workdir, steps, config, lines):
  """Trains to the end, killing the run whenever a number of steps is logged."""
  for count in lines:
    process = start(workdir, steps, config=config)
    wait_for_line(workdir, count, process)
    process.kill()
    process.communicate()
  finish(start(workdir, steps, config=config))


def rows_of(workdir):
  """The lines of a run's metrics."""
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  return list(map(json.loads, lines))


def metrics_of(workdir):
  """Returns the metrics of each step, without measurements of the machine."""
  # Imported here, because this module loads before JAX may be imported.
  from azr_jax.run import metrics

  return [
    {k: v for k, v in row.items() if not k.startswith(metrics.MACHINE_METRICS)}
    for row in rows_of(workdir)
  ]


def spans_of(workdir):
  """How often each span is in a run's trace, as Perfetto reads it.

  A step's span is named with its number.
  """
  [path] = (workdir / "profile").rglob("*.trace.json.gz")
  trace = json.loads(gzip.decompress(path.read_bytes()))
  return collections.Counter(
    " ".join((span["name"], span.get("args", {}).get("step_num", ""))).rstrip()
    for span in trace["traceEvents"]
    if span.get("ph") == "X"
  )


def wait_for_line(workdir, count, process):
  """Waits until a running command has logged `count` steps."""
  path = workdir / "metrics.jsonl"
  deadline = time.monotonic() + 300
  while time.monotonic() < deadline and process.poll() is None:
    if path.exists() and len(path.read_text().splitlines()) >= count:
      return
    time.sleep(0.05)
  raise AssertionError(f"no {count} lines: {process.communicate()[0][-2000:]}")


def copy_cut_after(step, run, copy):
  """Copies a run as if it was killed with `step` as its newest checkpoint.

  The copy has the metrics of later steps, as after a kill.
  """
  shutil.copytree(run, copy)
  for path in (copy / "checkpoints").iterdir():
    if int(path.name) > step:
      shutil.rmtree(path)
  assert (copy / "checkpoints" / str(step)).is_dir()


def make_once(tmp_path_factory, name, make):
  """Returns a folder that one pytest process creates for all of them.

  Args:
    tmp_path_factory: pytest's fixture.
    name: the name of the folder.
    make: a function that fills the given folder.
  """
  base = tmp_path_factory.getbasetemp()
  if "PYTEST_XDIST_WORKER" in os.environ:
    base = base.parent  # The parent is shared by all workers.
  folder, partial = base / name, base / f"{name}.partial"
  with (base / f"{name}.lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not folder.exists():
      shutil.rmtree(partial, ignore_errors=True)
      make(partial)
      partial.rename(folder)
  return folder
