"""The hostile programs, in every environment that an executor may meet.

`hostile_run.py` runs them all, once per environment, in a process of its own.
`test_ablation` leaves walls out, and so shows that these tests can fail.
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

from tests.executor.hostile_programs import CASES

REPOSITORY = pathlib.Path(__file__).parents[2]
LIMIT_S = 180
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []}
PYTHONS = (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")
# The walls left out, and who runs the script.
ENVIRONMENTS = {
  "every_wall": ((), {}),
  "unprivileged_user": ((), NOBODY),
  "without_landlock": (("landlock",), {}),
  "without_namespaces": (("namespaces",), {}),
  "without_both": (("landlock", "namespaces"), {}),
}


@dataclasses.dataclass(frozen=True)
class Outcome:
  """A report, the walls that were left out for it, and those not to be had."""

  report: dict[str, Any]
  without: tuple[str, ...]
  lacking: frozenset[str]


# What these two find is nearly always found without both, too.
SLOW = ("without_landlock", "without_namespaces")


@pytest.fixture(
  scope="module",
  params=[
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
    for name in ENVIRONMENTS
  ],
)
def outcome(request):
  """What the script found in an environment."""
  without, user = ENVIRONMENTS[request.param]
  python = _python_for_nobody() if user else sys.executable
  report = _run(python, f"--without={','.join(without)}", **user)
  return Outcome(report, without, _lacking(python, **user))


@pytest.mark.parametrize("name", CASES)
def test_program(outcome, name):
  found = outcome.report["cases"][name]
  assert found["held"], found
  assert found["sentinel"], found


def test_no_process_is_left(outcome):
  assert outcome.report["left_processes"] == []


def test_no_file_is_left(outcome):
  assert outcome.report["left_files"] == []


def test_the_walls_are_those_asked_for(outcome):
  layers = outcome.report["layers"]
  walls = ("seccomp", "unprivileged", "landlock", "namespaces")
  left_out = {*outcome.without, *outcome.lacking}
  assert {wall: layers[wall] for wall in walls} == {
    wall: wall not in left_out for wall in walls
  }


def test_the_programs_are_many():
  assert len(CASES) > 500


# By the flags that leave walls out, the programs of `ABLATED` that get through.
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
ABLATIONS = {
  "--without=unprivileged": {"peeking/privileges"},
  "--without=limits": _HELD_BY_LIMITS,
  "--unsafe": _HELD_BY_SECCOMP,
  "--unsafe --without=limits": _HELD_BY_SECCOMP
  | _HELD_BY_LIMITS
  | _HELD_BY_LIMITS_AND_SECCOMP,
  "--unsafe --without=landlock": _HELD_BY_SECCOMP | _HELD_BY_LANDLOCK,
  "--unsafe --without=namespaces": _HELD_BY_SECCOMP
  | {"processes/datagram_to_the_trainer"},
  "--unsafe --without=landlock,namespaces": _HELD_BY_SECCOMP
  | _HELD_BY_LANDLOCK
  | _HELD_BY_BOTH
  | {"processes/datagram_to_the_trainer"},
}
ABLATED = sorted(set().union(*ABLATIONS.values(), _HELD_BY_THE_USER))


@pytest.mark.parametrize("flags", ABLATIONS)
def test_ablation(flags):
  """Each wall stops just these of the programs that some wall must stop."""
  _needs_root_and_every_wall()
  report = _run(sys.executable, *flags.split(), f"--only={','.join(ABLATED)}")
  assert set(report["got_through"]) == ABLATIONS[flags]


def test_harm_to_a_zygote_is_seen():
  """By the sentinel: the program itself comes to nothing then."""
  name = "processes/limit_of_the_parent"
  report = _run(sys.executable, "--unsafe", f"--only={name}")
  assert not report["cases"][name]["sentinel"]


def test_what_is_left_behind_is_seen():
  """Without walls to speak of, a file, a process, and a gold in the open."""
  _needs_root_and_every_wall()
  names = _HELD_BY_THE_USER | {
    "files/create_in_shared_memory",
    "peeking/gold_in_the_environment_file",
    "processes/detach_by_two_forks",
  }
  without = "--without=landlock,namespaces,unprivileged,limits"
  flags = ("--unsafe", without, f"--only={','.join(sorted(names))}")
  report = _run(sys.executable, *flags)
  assert set(report["got_through"]) == names
  assert len(report["left_processes"]) == 1
  assert len(report["left_files"]) == 1


def _run(python: str, *flags: str, **user) -> dict[str, Any]:
  """Runs the script; returns its report."""
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
  """A Python that can import the executor as a user without rights."""
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
  """The walls that a user cannot have on this kernel, asked without them."""
  landlock_version = ctypes.CDLL(None).syscall(444, None, 0, 1)
  new_user = 0 if os.getuid() == 0 and not user else 0x10000000
  flags = 0x4C000000 | new_user  # Network, IPC, host name.
  unshare = f"import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare({flags}))"
  refused = _start(python, "-c", unshare, **user).returncode != 0
  lacking = {"landlock": landlock_version < 1, "namespaces": refused}
  return frozenset(wall for wall, is_lacking in lacking.items() if is_lacking)


def _needs_root_and_every_wall() -> None:
  if os.getuid() != 0 or _lacking():
    pytest.skip("measured as root on a kernel that has every wall")
