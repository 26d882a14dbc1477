"""The hostile programs, in the environments that an executor may meet.

`hostile_run.py` runs them all, once per environment, in a separate process. By
default that is the environment with every sandbox layer; the others are `slow`.
`test_ablation` leaves layers out, and so shows that these tests can fail.
"""

import ctypes
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
import training

from azr_jax.executor import scripts
from tests.executor.hostile_programs import CASES

REPOSITORY = pathlib.Path(__file__).parents[2]
LIMIT_S = 400
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []}
PYTHONS = (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")
# The layers that are left out, and the user who runs the script.
ENVIRONMENTS = {
  "every_layer": ((), {}),
  "unprivileged_user": ((), NOBODY),
  "without_landlock": (("landlock",), {}),
  "without_namespaces": (("namespaces",), {}),
  "without_both": (("landlock", "namespaces"), {}),
  "with_libraries": ((), {}),
}


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The script's report in an environment.

  Attributes:
    report: the script's output.
    disabled: the sandbox layers that were left out on purpose.
    lacking: the layers that the user cannot have on this kernel.
  """

  report: dict[str, Any]
  disabled: tuple[str, ...]
  lacking: frozenset[str]


@pytest.fixture(
  scope="module",
  params=[
    pytest.param(name, marks=[] if name == "every_layer" else pytest.mark.slow)
    for name in ENVIRONMENTS
  ],
)
def outcome(request, tmp_path_factory):
  """Runs the script in an environment, once for all of pytest's processes."""
  disabled, user = ENVIRONMENTS[request.param]
  python = _python_for_nobody() if user else sys.executable
  libraries = ""
  if request.param == "with_libraries":
    for name in scripts.LIBRARIES:
      pytest.importorskip(name, reason="needs the extra scripts")
    libraries = ",".join((scripts.RUNNER, *scripts.LIBRARIES))

  def make(folder):
    report = _run(
      python,
      f"--disable={','.join(disabled)}",
      f"--libraries={libraries}",
      **user,
    )
    folder.mkdir()
    (folder / "report.json").write_text(json.dumps(report))

  name = f"hostile_{request.param}"
  folder = training.make_once(tmp_path_factory, name, make)
  report = json.loads((folder / "report.json").read_text())
  return Outcome(report, disabled, _lacking(python, **user))


@pytest.mark.parametrize("name", CASES)
def test_program(outcome, name):
  case = outcome.report["cases"][name]
  assert case["held"], case
  assert case["sentinel"], case


def test_no_process_is_left(outcome):
  assert outcome.report["left_processes"] == []


def test_no_file_is_left(outcome):
  assert outcome.report["left_files"] == []


def test_the_layers_are_those_asked_for(outcome):
  layers = outcome.report["layers"]
  names = ("seccomp", "unprivileged", "landlock", "namespaces")
  left_out = {*outcome.disabled, *outcome.lacking}
  assert {name: layers[name] for name in names} == {
    name: name not in left_out for name in names
  }


def test_the_programs_are_many():
  assert len(CASES) > 670


# Programs that each layer stops, of those in `ABLATED`.
_HELD_BY_SECCOMP = {
  "files/memory_file",
  "files/stat",
  "processes/executable_memory",
  "processes/internet_socket",
  "processes/kill_itself",
  "processes/outlive_the_parent",
  "processes/shared_memory",
  "processes/sleep",
  "processes/user_namespace",
}
_HELD_BY_LANDLOCK = {
  "files/create",
  "files/device_null",
  "files/os_open",
  "files/remove",
  "processes/exec",
}
_HELD_BY_LIMITS = {
  "resources/memory_bytes",
  "resources/memory_in_the_input",
  "resources/memory_shared_mapping",
}
_HELD_BY_LIMITS_AND_SECCOMP = {
  "processes/fork",
  "processes/fork_bomb",
  "processes/thread_bomb",
}
_HELD_BY_THE_USER = {
  "files/parent_memory",
  "files/trainer_environment",
  "processes/kill_the_trainer",
}
_HELD_BY_BOTH = {
  "processes/abstract_socket_of_the_trainer",
  "processes/connect_to_the_trainer",
}
# The programs of `ABLATED` that get through, by the flags of the script.
ABLATIONS = {
  "--disable=unprivileged": {"peeking/privileges"},
  "--disable=limits": _HELD_BY_LIMITS,
  "--unsafe": _HELD_BY_SECCOMP,
  "--unsafe --disable=limits": _HELD_BY_SECCOMP
  | _HELD_BY_LIMITS
  | _HELD_BY_LIMITS_AND_SECCOMP,
  "--unsafe --disable=landlock": _HELD_BY_SECCOMP | _HELD_BY_LANDLOCK,
  "--unsafe --disable=namespaces": _HELD_BY_SECCOMP
  | {"processes/datagram_to_the_trainer"},
  "--unsafe --disable=landlock,namespaces": _HELD_BY_SECCOMP
  | _HELD_BY_LANDLOCK
  | _HELD_BY_BOTH
  | {"processes/datagram_to_the_trainer"},
}
ABLATED = sorted(set().union(*ABLATIONS.values(), _HELD_BY_THE_USER))


# By default, each layer is left out alone, and most of them together.
_SLOW_ABLATIONS = (
  "--unsafe --disable=limits",
  "--unsafe --disable=landlock",
  "--unsafe --disable=namespaces",
)


@pytest.mark.parametrize(
  "flags",
  [
    pytest.param(
      flags, marks=pytest.mark.slow if flags in _SLOW_ABLATIONS else []
    )
    for flags in ABLATIONS
  ],
)
def test_ablation(flags):
  """Without some layers, exactly the listed programs get through."""
  _needs_root_and_every_layer()
  report = _run(sys.executable, *flags.split(), f"--only={','.join(ABLATED)}")
  assert set(report["got_through"]) == ABLATIONS[flags]


def test_harm_to_a_zygote_is_seen():
  """The sentinel sees it; the program's verdict does not."""
  name = "processes/limit_of_the_parent"
  report = _run(sys.executable, "--unsafe", f"--only={name}")
  assert not report["cases"][name]["sentinel"]


def test_what_is_left_behind_is_seen():
  """With hardly any layer, a file and a process stay, and a secret leaks."""
  _needs_root_and_every_layer()
  names = _HELD_BY_THE_USER | {
    "files/create_in_shared_memory",
    "peeking/secret_in_the_environment_file",
    "processes/detach_by_two_forks",
  }
  disable = "--disable=landlock,namespaces,unprivileged,limits"
  only = f"--only={','.join(sorted(names))}"
  # The process never ends, so a longer wait for it would be in vain.
  report = _run(sys.executable, "--unsafe", disable, only, "--settle_s=1")
  assert set(report["got_through"]) == names
  assert len(report["left_processes"]) == 1
  assert len(report["left_files"]) == 1


def _run(python: str, *flags: str, **user) -> dict[str, Any]:
  """Runs the script and returns its report."""
  done = _start(python, "-m", "tests.executor.hostile_run", *flags, **user)
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


def _start(*command: str, **user) -> subprocess.CompletedProcess:
  return subprocess.run(
    command,
    capture_output=True,
    cwd=REPOSITORY,
    env={
      "PATH": os.environ["PATH"],
      "PYTHONPATH": str(REPOSITORY),
      "PYTHONDONTWRITEBYTECODE": "1",
    },
    text=True,
    timeout=LIMIT_S,
    **user,
  )


def _python_for_nobody() -> str:
  """Returns a Python that can import the executor as an unprivileged user."""
  if os.getuid() != 0:
    pytest.skip("only root can become another user")
  attempt = ("-c", "import sys, azr_jax.executor; sys.version_info > (3, 11)")
  for python in PYTHONS:
    try:
      if _start(python, *attempt, **NOBODY).returncode == 0:
        return python
    except OSError:
      continue
  pytest.skip(f"none of {PYTHONS} runs the executor for user {NOBODY['user']}")


def _lacking(python: str = sys.executable, **user) -> frozenset[str]:
  """Returns the layers that a user cannot have on this kernel.

  It asks the kernel, not the executor.
  """
  landlock_version = ctypes.CDLL(None).syscall(444, None, 0, 1)
  new_user = 0 if os.getuid() == 0 and not user else 0x10000000
  flags = 0x4C000000 | new_user  # Namespaces of network, IPC and host name.
  unshare = f"import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare({flags}))"
  refused = _start(python, "-c", unshare, **user).returncode != 0
  lacking = {"landlock": landlock_version < 1, "namespaces": refused}
  return frozenset(name for name, is_lacking in lacking.items() if is_lacking)


def _needs_root_and_every_layer() -> None:
  if os.getuid() != 0 or _lacking():
    pytest.skip("measured as root on a kernel that has every layer")
