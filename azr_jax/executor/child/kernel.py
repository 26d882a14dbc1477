"""The sandbox layers of Linux: seccomp, landlock, namespaces, resource limits.

They are set up through ctypes and libc, without root or dependencies. Only the
zygote imports this module, before it serves. `fork` creates each child, which
calls `deny_files` and `enter_child`. `system_calls.py` defines the calls that
seccomp allows.
"""

import contextlib
import ctypes
import os
import resource
import struct
from collections.abc import Collection

import system_calls

_LIBC = ctypes.CDLL(None, use_errno=True)
_SYSCALL = _LIBC.syscall
_PRCTL = _LIBC.prctl
_FORK = ctypes.PyDLL(None, use_errno=True).fork  # PyDLL keeps the GIL.
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SIGKILL = 9
_NOBODY = 65534


class _FilterProgram(ctypes.Structure):
  _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


_FILTER = system_calls.seccomp_filter(os.uname().machine)
_FILTER_BUFFER = ctypes.create_string_buffer(_FILTER or b"")
_PROGRAM = _FilterProgram(
  len(_FILTER or b"") // 8, ctypes.addressof(_FILTER_BUFFER)
)
_PROGRAM_POINTER = ctypes.byref(_PROGRAM)
# The descriptor of the landlock ruleset, or None without landlock.
_ruleset: int | None = None


def enter_zygote(wanted: Collection[str], memory_bytes: int) -> dict[str, bool]:
  """Activates the wanted sandbox layers that children inherit.

  Layers that the kernel lacks are skipped. Layers that a child must activate
  itself (`enter_child`) are not tested here.

  Args:
    wanted: names of layers, from `settings.LAYERS`.
    memory_bytes: address space that a child may allocate in addition to the
      zygote's. (Libraries reserve any amount there; complexipy takes a GiB.)

  Returns:
    Whether each layer is active, by name.
  """
  if "limits" in wanted:
    limit = _address_space() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
  layers = {"killed_first": _prefer_oom_kill(), "limits": "limits" in wanted}
  layers["namespaces"] = "namespaces" in wanted and _unshare()
  _PRCTL(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
  layers["unprivileged"] = "unprivileged" in wanted and _drop_root()
  layers["landlock"] = "landlock" in wanted and _prepare_landlock()
  # Children run as the same user, which may not trace or read a process that is
  # not dumpable.
  _PRCTL(_PR_SET_DUMPABLE, 0, 0, 0, 0)
  return layers


def fork() -> int:
  """Forks a single-threaded process; returns the same as `os.fork`.

  It skips Python's repair of threads and locks after a fork, which touches
  twenty pages.

  Raises:
    OSError: the kernel refuses the fork.
  """
  pid = _FORK()
  if pid < 0:
    error = ctypes.get_errno()
    raise OSError(error, os.strerror(error))
  return pid


def deny_files() -> None:
  """Denies files, TCP ports, abstract sockets and signals to this child.

  The zygote itself keeps access to files, because it reads from /proc how long
  a child waited for a core.

  Raises:
    OSError: the kernel refuses landlock.
  """
  restrict = 446
  if _ruleset is not None and _SYSCALL(restrict, _ruleset, 0) != 0:
    raise OSError("landlock is refused")


def enter_child(wanted: Collection[str], zygote: int, cpu_seconds: int) -> None:
  """Activates the wanted sandbox layers of this child, irrevocably.

  Args:
    wanted: names of layers, from `settings.LAYERS`.
    zygote: the parent's process id.
    cpu_seconds: the limit on CPU time.

  Raises:
    OSError: the zygote has died, or the kernel refuses seccomp.
  """
  _PRCTL(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
  if os.getppid() != zygote:
    raise OSError("the zygote died first")
  if "limits" in wanted:
    limit = resource.setrlimit
    limit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    limit(resource.RLIMIT_FSIZE, (0, 0))
    limit(resource.RLIMIT_NPROC, (0, 0))
    limit(resource.RLIMIT_NOFILE, (16, 16))
  if "seccomp" in wanted and (
    _FILTER is None or _PRCTL(_PR_SET_SECCOMP, 2, _PROGRAM_POINTER, 0, 0)
  ):
    raise OSError("seccomp is refused")


def _address_space() -> int:
  """Returns the size of this process's address space, in bytes."""
  with open("/proc/self/statm", "rb") as file:
    pages = int(file.read().split()[0])
  return pages * resource.getpagesize()


def _prefer_oom_kill() -> bool:
  """Asks the kernel to kill this process first when memory is short.

  Returns whether the kernel accepted.
  """
  try:
    with open("/proc/self/oom_score_adj", "w") as score:
      score.write("1000")
  except OSError:
    return False
  return True


def _drop_root() -> bool:
  """Changes the user from root to nobody; returns whether it is not root."""
  if os.getuid() == 0:
    for drop in (
      lambda: os.setgroups([]),
      lambda: os.setresgid(_NOBODY, _NOBODY, _NOBODY),
      lambda: os.setresuid(_NOBODY, _NOBODY, _NOBODY),
    ):
      with contextlib.suppress(OSError):  # The return value reports failure.
        drop()
  return os.getuid() != 0


def _unshare() -> bool:
  """Enters new network, IPC and host name namespaces; returns success."""
  network_ipc_uts = 0x40000000 | 0x08000000 | 0x04000000
  user = 0 if os.getuid() == 0 else 0x10000000
  return _LIBC.unshare(user | network_ipc_uts) == 0


def _prepare_landlock() -> bool:
  """Creates the ruleset for `deny_files`; returns success."""
  global _ruleset
  create = 444
  abi = _SYSCALL(create, None, 0, 1)
  if abi < 1:
    return False
  files = (1 << 13) - 1
  files |= (1 << 13 if abi >= 2 else 0) | (1 << 14 if abi >= 3 else 0)
  files |= 1 << 15 if abi >= 5 else 0
  size = 8 if abi < 4 else 16 if abi < 6 else 24
  attributes = struct.pack("QQQ", files, 3, 3)[:size]
  ruleset = _SYSCALL(create, attributes, size, 0)
  _ruleset = ruleset if ruleset >= 0 else None
  return _ruleset is not None
