"""Tests of the system call filter, in a process that installs it."""

import struct
import subprocess
import sys

import pytest

from azr_jax.executor.child import system_calls
from azr_jax.executor.pool import worker

# Constants from `linux/audit.h` and `linux/seccomp.h`.
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, DENY, ZERO, KILL = 0x7FFF0000, 0x50001, 0x50000, 0x80000000
FOLDER = worker._ZYGOTE.parent
ENTER = """
import os, socket, sys, mmap, signal, threading, time
main, parent = threading.get_ident(), os.getppid()
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
    ("os.getuid()", "allowed"),
    ("assert os.getpid() == threading.get_native_id() == 0", "allowed"),
    ("time.clock_gettime((~parent << 3) | 2)", "PermissionError"),
    ("time.clock_getres((~parent << 3) | 2)", "PermissionError"),
    ("time.clock_gettime(time.pthread_getcpuclockid(main))", "PermissionError"),
    ("time.clock_gettime(time.CLOCK_TAI)", "allowed"),
    ("time.process_time(), time.thread_time()", "allowed"),
    ("threading.Event().wait(0.01)", "allowed"),
    ("mmap.mmap(-1, 4096).madvise(4)", "allowed"),
    ("mmap.mmap(-1, 4096).madvise(12)", "PermissionError"),
    ("mmap.mmap(-1, 1 << 21, flags=0x40022)", "PermissionError"),
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


@pytest.mark.parametrize(
  "machine, call, arguments, verdict",
  [
    ("x86_64", "read", (), ALLOW),
    ("x86_64", 2, (), DENY),
    ("x86_64", 39, (), ZERO),
    ("x86_64", "mmap", (0, 1, 3, 0x22), ALLOW),
    ("x86_64", "mmap", (0, 1, 7, 0x22), DENY),
    ("x86_64", "mmap", (0, 1, 3, 0x40022), DENY),
    ("x86_64", "mprotect", (0, 1, 3), ALLOW),
    ("x86_64", "mprotect", (0, 1, 4), DENY),
    ("x86_64", "futex", (0, 128 + 9 + 256), ALLOW),
    ("x86_64", "futex", (0, 129), ALLOW),
    ("x86_64", "futex", (0, 1), DENY),
    ("x86_64", "futex", (0, 9 + 256), DENY),
    ("x86_64", "futex", (0, 128 + 6), DENY),
    ("x86_64", "futex", (0, 2**32 + 1), DENY),
    ("x86_64", "clock_gettime", (15,), ALLOW),
    ("x86_64", "clock_gettime", (16,), DENY),
    ("x86_64", "clock_gettime", (2**64 - 6,), DENY),
    ("x86_64", "clock_gettime", (2**32 - 6,), DENY),
    ("x86_64", "clock_getres", (2**64 - 6,), DENY),
    ("x86_64", "madvise", (0, 1, 4), ALLOW),
    ("x86_64", "madvise", (0, 1, 12), DENY),
    ("x86_64", "madvise", (0, 1, 21), DENY),
    ("x86_64", 2**30, (), KILL),
    ("aarch64", "read", (), ALLOW),
    ("aarch64", 56, (), DENY),
    ("aarch64", 172, (), ZERO),
    ("aarch64", "mmap", (0, 1, 7, 0x22), DENY),
    ("aarch64", "futex", (0, 1), DENY),
    ("aarch64", "clock_gettime", (2**64 - 6,), DENY),
  ],
)
def test_filter_program(machine, call, arguments, verdict):
  column = ("x86_64", "aarch64").index(machine)
  if isinstance(call, str):
    number = {
      **system_calls.ALLOWED,
      **{name: rule[0] for name, rule in system_calls.LIMITED.items()},
    }[call][column]
  else:
    number = call
  program = system_calls.seccomp_filter(machine)
  assert interpret(program, AUDIT[machine], number, arguments) == verdict
  other = AUDIT["aarch64" if machine == "x86_64" else "x86_64"]
  assert interpret(program, other, number, arguments) == KILL


@pytest.mark.parametrize("machine", AUDIT)
def test_no_other_call_is_allowed(machine):
  program = system_calls.seccomp_filter(machine)
  column = list(AUDIT).index(machine)
  allowed = {numbers[column] for numbers in system_calls.ALLOWED.values()}
  limited = {rule[0][column] for rule in system_calls.LIMITED.values()}
  passed = {
    number
    for number in range(1000)
    if interpret(program, AUDIT[machine], number, (2**64 - 1,) * 6) == ALLOW
  }
  assert passed == allowed and not passed & limited


def interpret(program, architecture, number, arguments):
  """Returns the verdict of a BPF program on a system call."""
  padded = (*arguments, *(0,) * (6 - len(arguments)))
  seen = struct.pack("<IIQ6Q", number, architecture, 0, *padded)
  lines = list(struct.iter_unpack("HBBI", program))
  at = loaded = 0
  while True:
    code, if_true, if_false, operand = lines[at]
    at += 1
    if code == 0x06:
      return operand
    if code == 0x20:
      (loaded,) = struct.unpack_from("<I", seen, operand)
    else:
      holds = {
        0x15: loaded == operand,
        0x35: loaded >= operand,
        0x45: bool(loaded & operand),
      }[code]
      at += if_true if holds else if_false


def test_an_unknown_machine_has_no_filter():
  assert system_calls.seccomp_filter("riscv64") is None


def test_call_numbers_are_distinct():
  numbers = [
    *system_calls.ALLOWED.values(),
    *system_calls.ZERO.values(),
    *(rule[0] for rule in system_calls.LIMITED.values()),
  ]
  for column in zip(*numbers, strict=True):
    assert len(set(column)) == len(numbers)
