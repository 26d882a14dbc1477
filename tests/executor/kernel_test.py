"""Tests of the system call filter, in a process that installs it."""

import subprocess
import sys

import pytest

from azr_jax.executor import kernel, worker

FOLDER = worker._ZYGOTE.parent
ENTER = """
import os, socket, sys, mmap, signal
sys.path.insert(0, sys.argv[1])
import kernel
kernel._PRCTL(38, 1, 0, 0, 0)
kernel.enter_child({{"limits", "seccomp"}}, os.getppid(), 5)
try:
  {}
except OSError as error:
  print(type(error).__name__)
else:
  print("allowed")
"""


@pytest.mark.parametrize(
  "attempt, outcome",
  [
    ("socket.socket()", "PermissionError"),
    ("os.fork()", "PermissionError"),
    ("os.dup(1)", "PermissionError"),
    ("os.open('/', 0)", "PermissionError"),
    ("os.kill(os.getpid(), 0)", "PermissionError"),
    ("os.memfd_create('x')", "PermissionError"),
    ("mmap.mmap(-1, 4096, prot=5)", "PermissionError"),
    ("mmap.mmap(-1, 4096, prot=3)", "allowed"),
    ("os.getpid()", "allowed"),
  ],
)
def test_filter(attempt, outcome):
  code = ENTER.format(attempt)
  done = subprocess.run(
    [sys.executable, "-c", code, str(FOLDER)],
    capture_output=True,
    timeout=30,
    text=True,
  )
  assert done.stdout.strip() == outcome, done.stderr


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_filter_has_a_program_for(machine):
  assert len(kernel.seccomp_filter(machine)) % 8 == 0


def test_an_unknown_machine_has_no_filter():
  assert kernel.seccomp_filter("riscv64") is None


def test_call_numbers_are_distinct():
  numbers = [*kernel.ALLOWED.values(), *kernel.NOT_EXECUTABLE.values()]
  for column in zip(*numbers, strict=True):
    assert len(set(column)) == len(numbers)
