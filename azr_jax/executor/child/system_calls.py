"""The system calls that a program may make, and the filter that enforces it.

Most are allowed with any arguments. A few could reach beyond the process with
some arguments, which are denied (`LIMITED`):

| call | what the denied arguments could do |
| --- | --- |
| `mmap`, `mprotect` | make memory executable; take reserved huge pages |
| `futex` | wake a process that waits at the same address of a mapped file, |
| | such as the C library; probe for processes (priority inheritance) |
| `clock_gettime`, `clock_getres` | read the CPU time of another process |
| `madvise` | evict pages, or merge them with pages of other processes |

Process and thread ids read as 0 (`ZERO`), because they reveal how many
processes the machine starts.

The kernel never filters two calls: uretprobe (335) and uprobe (336). Outside of
a probe, they do nothing.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# Numbers of the system calls that a program may make: (x86-64, aarch64).
ALLOWED = {
  "read": (0, 63),
  "write": (1, 64),
  "close": (3, 57),
  "lseek": (8, 62),
  "munmap": (11, 215),
  "brk": (12, 214),
  "rt_sigaction": (13, 134),
  "rt_sigprocmask": (14, 135),
  "rt_sigreturn": (15, 139),
  "sched_yield": (24, 124),
  "mremap": (25, 216),
  "exit": (60, 93),
  "gettimeofday": (96, 169),
  "getrusage": (98, 165),
  "getuid": (102, 174),
  "sigaltstack": (131, 132),
  "exit_group": (231, 94),
  "restart_syscall": (219, 128),
}
# These return 0 instead of running.
ZERO = {"getpid": (39, 172), "gettid": (186, 178)}
_PROT_EXEC = 4
_MAP_HUGETLB = 0x40000
_PRIVATE, _REALTIME = 128, 256
_WAIT, _WAKE, _WAIT_BITSET, _WAKE_BITSET = 0, 1, 9, 10
_FUTEX = (
  _PRIVATE | _WAIT,
  _PRIVATE | _WAKE,
  _PRIVATE | _WAIT_BITSET,
  _PRIVATE | _WAKE_BITSET,
  _PRIVATE | _WAIT | _REALTIME,
  _PRIVATE | _WAIT_BITSET | _REALTIME,
)
_DONTNEED, _FREE, _HUGEPAGE, _NOHUGEPAGE = 4, 8, 14, 15
_ADVICE = (_DONTNEED, _FREE, _HUGEPAGE, _NOHUGEPAGE)
# Ids of the machine's and the process's own clocks are below this; the ids of
# other processes' clocks are above.
_CLOCKS = 16
# Calls that are allowed if their arguments pass all tests. A test is the
# argument's position, the comparison, and its operand.
LIMITED = {
  "mmap": ((9, 222), (2, "lacks", _PROT_EXEC), (3, "lacks", _MAP_HUGETLB)),
  "mprotect": ((10, 226), (2, "lacks", _PROT_EXEC)),
  "madvise": ((28, 233), (2, "one of", _ADVICE)),
  "futex": ((202, 98), (1, "one of", _FUTEX)),
  "clock_gettime": ((228, 113), (0, "below", _CLOCKS)),
  "clock_getres": ((229, 114), (0, "below", _CLOCKS)),
}
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

_EPERM = 1
_X32_BIT = 0x40000000
# Offsets in `struct seccomp_data`, the filter's input.
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
# Codes of BPF instructions.
_LOAD, _RETURN = 0x20, 0x06
_EQUAL, _AT_LEAST, _BITS = 0x15, 0x35, 0x45
_ERRNO = 0x00050000
_VERDICTS = {
  "allow": 0x7FFF0000,
  "deny": _ERRNO | _EPERM,
  "zero": _ERRNO,
  "kill": 0x80000000,
}
_NEXT = ""  # The label of the next instruction.
# Code, operand, label if true, label if false.
_Instruction = tuple[int, int, str, str]


def seccomp_filter(machine: str) -> bytes | None:
  """Returns the allowlist as a BPF program, or None for an unknown machine.

  System calls that are not listed fail with EPERM. Calls of another
  architecture, or with x32 numbers, kill the process.
  """
  if machine not in _ARCHITECTURES:
    return None
  return _assembled(_instructions(*_ARCHITECTURES[machine]))


def _instructions(audit: int, column: int) -> Iterator[_Instruction | str]:
  """Yields the filter's instructions and, before some of them, labels."""
  yield _LOAD, _ARCHITECTURE_AT, _NEXT, _NEXT
  yield _EQUAL, audit, _NEXT, "kill"
  yield _LOAD, _NUMBER_AT, _NEXT, _NEXT
  yield _AT_LEAST, _X32_BIT, "kill", _NEXT
  for numbers in ALLOWED.values():
    yield _EQUAL, numbers[column], "allow", _NEXT
  for numbers in ZERO.values():
    yield _EQUAL, numbers[column], "zero", _NEXT
  for name, (numbers, *_) in LIMITED.items():
    yield _EQUAL, numbers[column], name, _NEXT
  yield _verdict("deny")
  for name, (_, *tests) in LIMITED.items():
    yield name
    for number, (position, kind, operand) in enumerate(tests):
      passed = f"{name} {number}"
      yield _LOAD, _ARGUMENTS_AT + 8 * position, _NEXT, _NEXT
      yield from _TESTS[kind](operand, passed)
      yield _verdict("deny")
      yield passed
    yield _verdict("allow")
  for name in ("allow", "zero", "kill"):
    yield name
    yield _verdict(name)


def _verdict(name: str) -> _Instruction:
  return _RETURN, _VERDICTS[name], _NEXT, _NEXT


# Instructions that jump if the loaded argument passes a test. They see only its
# low 32 bits; the kernel ignores the other bits of these arguments.
_TESTS: dict[str, Callable[[Any, str], list[_Instruction]]] = {
  "lacks": lambda bits, label: [(_BITS, bits, _NEXT, label)],
  "below": lambda limit, label: [(_AT_LEAST, limit, _NEXT, label)],
  "one of": lambda values, label: [
    (_EQUAL, value, label, _NEXT) for value in values
  ],
}


def _assembled(lines: Iterable[_Instruction | str]) -> bytes:
  """Returns the instructions as bytes, with labels resolved to distances."""
  offsets: dict[str, int] = {}
  code: list[_Instruction] = []
  for line in lines:
    if isinstance(line, str):
      offsets[line] = len(code)
    else:
      code.append(line)
  packed = []
  for at, (operation, operand, *labels) in enumerate(code):
    jumps = [offsets[to] - at - 1 if to else 0 for to in labels]
    packed.append(struct.pack("HBBI", operation, *jumps, operand))
  return b"".join(packed)
