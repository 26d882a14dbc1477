"""Programs that ask about other processes, wake them, or affect their memory.

Most make a system call whose arguments work outside the sandbox. The numbers of
calls are those of x86-64; on another machine they mean other calls, which are
denied too.
"""

from tests.executor.hostile_case import (
  DENIED,
  LIBC,
  Case,
  denied,
  gives,
  refused,
)

# The number of another process's clock, as clock_getcpuclockid(3) returns it.
_CLOCK = "(~{pid} << 3) | {kind}"
_WORD = "word = (0).to_bytes(4, 'little')"
# Addresses in a page of the C library, which all processes have in common.
_SHARED = """
kinds = libc.__init__.__globals__
place = kinds['c_void_p'](kinds['cast'](libc.abs, kinds['c_void_p']).value & ~3)
libc.mmap.restype = kinds['c_void_p']
"""
_PAGE = (
  f"{_SHARED}page = libc.mmap(None, 1 << 21, 3, 0x22, -1, 0)\n"
  "page = kinds['c_void_p'](page)"
)


def _clock(pid, kind=2, call="clock_gettime"):
  number = _CLOCK.format(pid=pid, kind=kind)
  return denied(f"time.{call}({number})", "os, time")


def _futex(operation, setup=_WORD, place="word", value="0", rest="0, 0, 0"):
  return refused(f"syscall(202, {place}, {operation}, {value}, {rest})", setup)


def _advice(number):
  return refused(f"madvise(page, 1 << 21, {number})", _PAGE)


def _system(number, *arguments, setup=""):
  return refused(f"syscall({', '.join(map(str, (number, *arguments)))})", setup)


CLOCKS = {
  "of_the_trainer": _clock("TRAINER"),
  "of_init": _clock("1"),
  "of_init_user_time": _clock("1", 1),
  "of_init_all_time": _clock("1", 0),
  "of_inits_thread": _clock("1", 6),
  "of_the_zygote": Case(
    # `threading` still knows the zygote's process id from before the fork.
    "import time\nimport threading\n"
    "def f():\n  pid = threading.main_thread().native_id\n"
    "  return time.clock_gettime((~pid << 3) | 2)",
    errors=("PermissionError", "TypeError"),
  ),
  "resolution_of_anothers": _clock("1", call="clock_getres"),
  "of_a_descriptor": _clock("0", 3),
  "of_its_thread_by_name": denied(
    "time.clock_gettime(time.pthread_getcpuclockid(_thread.get_ident()))",
    "_thread, time",
  ),
  "of_a_search_for_processes": gives(
    "import time\ndef f():\n  found = 0\n  for pid in range(1, 5000):\n"
    "    try:\n      time.clock_gettime((~pid << 3) | 2)\n      found += 1\n"
    "    except OSError: pass\n  return found",
    "0",
  ),
  "set": denied("time.clock_settime(0, 0.0)", "time"),
  "adjusted": refused("syscall(305, 0, bytes(208))"),
  "to_sleep_by": refused(
    "syscall(230, 1, 0, (0).to_bytes(8, 'little') + (9).to_bytes(8, 'little'),"
    " 0)"
  ),
  "to_sleep_until": refused("syscall(35, bytes(16), 0)"),
  "by_the_c_library": refused(
    "clock_getcpuclockid(1, out) or libc.clock_gettime(int.from_bytes("
    "out, 'little', signed=True), bytes(16))",
    "out = bytes(4)",
    failure="1",
  ),
}

FUTEXES = {
  "wake_by_the_c_library": _futex(1, _SHARED, "place", "99"),
  "wait_by_the_c_library": _futex(0, _SHARED, "place", "0"),
  "wake_bits_by_the_c_library": _futex(10, _SHARED, "place", "99", "0, 0, -1"),
  "move_waiters": _futex(3, _SHARED, "place", "1", "1, place, 0"),
  "move_waiters_if_equal": _futex(4, _SHARED, "place", "1", "1, place, 0"),
  "wake_and_change": _futex(5, _WORD, "word", "1", "1, word, 0"),
  "wake_in_shared_memory": _futex(
    1,
    f"{_SHARED}page = kinds['c_void_p'](libc.mmap(None, 4096, 3, 0x21, -1, 0))",
    "page",
    "99",
  ),
  "wake_by_the_clock_of_the_day": _futex(1 + 256),
  "descriptor": _futex(2),
  "lock_that_passes_on_priority": _futex(6 + 128),
  "try_a_lock_that_passes_on_priority": _futex(8 + 128),
  "unlock_what_passes_on_priority": _futex(
    "128 + 7", "word = libc.gettid().to_bytes(4, 'little', signed=True)"
  ),
  "lock_owned_by_init": _futex(8 + 128, "word = (1).to_bytes(4, 'little')"),
  "wait_to_be_moved": _futex(11 + 128),
  "move_to_a_lock": _futex(12 + 128, _WORD, "word", "1", "1, word, 0"),
  "lock_with_a_clock": _futex(13 + 128),
  "new_wake": _system(454, "place", -1, 1, 2, setup=_SHARED),
  "new_wait": _system(455, "place", 1, -1, 2, 0, 0, setup=_SHARED),
  "new_move": _system(456, "bytes(48)", 0, 1, 1),
  "wait_for_many": _system(449, "bytes(24)", 1, 0, 0, 0),
  "list_of_locks_of_another": _system(274, 1, "bytes(8)", "bytes(8)"),
  "own_list_of_locks": _system(273, "bytes(24)", 24),
  "operation_with_high_bits": _futex(2**32 + 1, _SHARED, "place", "99"),
}

PAGES = {
  "merge_with_others": _advice(12),
  "push_out": _advice(21),
  "make_cold": _advice(20),
  "read_ahead": _advice(3),
  "keep_from_children": _advice(10),
  "wipe_in_children": _advice(18),
  "remove_from_the_file": _advice(9),
  "fill_at_once": _advice(23),
  "collapse": _advice(25),
  "guard": _advice(102),
  "break": _advice(100),
  "push_out_the_c_library": refused(
    "madvise(kinds['c_void_p'](place.value & ~4095), 4096, 21)", _SHARED
  ),
  "advise_another_process": _system(440, 0, "bytes(16)", 1, 20, 0),
  "which_are_in_memory": _system(27, "page", 4096, "bytes(1)", setup=_PAGE),
  "state_of_the_page_cache": _system(451, 0, "bytes(16)", "bytes(40)", 0),
  "lock": _system(149, "page", 4096, setup=_PAGE),
  "lock_all": _system(151, 1),
  "move_to_a_node": _system(279, 0, 0, 0, 0, 0, 0),
  "move_a_process_to_a_node": _system(256, 0, 64, "bytes(8)", "bytes(8)"),
  "policy_of_nodes": _system(239, "bytes(4)", 0, 0, 0, 0),
  "reserved_huge_pages": refused("mmap(None, 1 << 21, 3, 0x40022, -1, 0)"),
  "reserved_gigantic_pages": refused(
    "mmap(None, 1 << 30, 3, 0x78040022, -1, 0)"
  ),
  "key_of_protection": _system(330, 0, 0),
  "protect_by_key": _system(329, "page", 4096, 3, -1, setup=_PAGE),
  "seal": _system(462, "page", 4096, 0, setup=_PAGE),
  "order_of_the_file": _system(216, "page", 4096, 0, 0, 0, setup=_PAGE),
  "shadow_stack": _system(453, 0, 4096, 0),
  "executable_copy_of_code": refused(
    "mprotect(kinds['c_void_p'](libc.mremap(kinds['c_void_p'](place.value &"
    " ~4095), 0, 4096, 1)), 4096, 7)",
    f"{_SHARED}libc.mremap.restype = kinds['c_void_p']",
  ),
}

PROCESSES = {
  "own_number": gives("import os\ndef f():\n  return os.getpid()", "0"),
  "own_number_by_the_c_library": refused("getpid()", failure="0"),
  "number_of_the_thread": gives(
    "import _thread\ndef f():\n  return _thread.get_native_id()", "0"
  ),
  "number_of_the_parent": gives(
    "import os\ndef f():\n  return os.getppid()", "-1"
  ),
  "group_of_the_parent": denied("os.getpgid(0)"),
  "session_of_the_parent": denied("os.getsid(0)"),
  "priority_of_init": denied("os.getpriority(os.PRIO_PROCESS, 1)"),
  "priority_of_input_of_init": _system(252, 1, 1),
  "set_the_priority_of_input": _system(251, 1, 0, 0x6000),
  "cores_of_init": denied("os.sched_getaffinity(1)"),
  "scheduler_of_init": denied("os.sched_getscheduler(1)"),
  "attributes_of_the_scheduler_of_init": _system(315, 1, "bytes(48)", 48, 0),
  "time_slice_of_init": denied("os.sched_rr_get_interval(1)"),
  "limits_of_init": denied(
    "resource.prlimit(1, resource.RLIMIT_NOFILE)", "resource"
  ),
  "compare_with_init": _system(312, 1, 1, 1, 0, 0),
  "counter_of_the_processor": _system(
    298, "bytes([1]) + bytes(3) + bytes([128]) + bytes(123)", 0, -1, -1, 0
  ),
  "barrier_on_every_core": _system(324, 1, 0, 0),
  "handle_of_init": denied("os.pidfd_open(1)"),
  "descriptor_of_init": _system(438, 0, 0, 0),
  "end_a_process_memory": _system(448, 0, 0),
  "write_to_the_parents_memory": refused(
    "process_vm_writev(os.getppid(), bytes(16), 1, bytes(16), 1, 0)"
  ),
  "seize_init": refused("ptrace(0x4206, 1, 0, 0)"),
  "real_and_effective_user": denied("os.getresuid()"),
  "real_and_effective_group": denied("os.getresgid()"),
  "capabilities": _system(
    125, "b'\\x22\\x05\\x08\\x20' + bytes(4)", "bytes(24)"
  ),
  "time_of_children": _system(100, "bytes(32)"),
  "state_of_the_machine": _system(99, "bytes(128)"),
  "log_of_the_kernel": _system(103, 10, 0, 0),
  "core_that_runs_it": _system(309, "bytes(4)", "bytes(4)", 0),
}

# Two runs of a program, at the same time, try to find out about each other.
_MEETING = """
import threading, time
def f():
  met, end = False, time.perf_counter() + 0.3
  while time.perf_counter() < end:
    {attempt}
    threading.Event().wait(0.001)
  return met
"""


def _meeting(attempt, setup=""):
  code = f"{LIBC}{setup}{_MEETING.format(attempt=attempt)}"
  return Case(
    code, runs=2, statuses=("ok", "error"), errors=DENIED, outputs=("False",)
  )


CHANNELS = {
  "waking": _meeting(
    "met |= libc.syscall(202, place, 1, 99, 0, 0, 0) > 0\n"
    "    met |= libc.syscall(202, place, 0, value, moment, 0, 0) == 0",
    f"{_SHARED}moment = bytes(8) + (10**6).to_bytes(8, 'little')\n"
    "value = kinds['c_int'].from_address(place.value).value\n",
  ),
  "clocks": _meeting(
    "for pid in range(parent, parent + 2000):\n"
    "      met |= libc.clock_gettime((~pid << 3) | 2, bytes(16)) == 0",
    "import threading\nparent = threading.main_thread().native_id or 1\n",
  ),
  "signals": _meeting("met |= libc.kill(0, 0) == 0"),
  "place_in_a_file": _meeting(
    "met |= libc.lseek(1, 0, 1) != 0 or libc.lseek(1, 7, 0) != 0"
  ),
  "place_in_the_report": _meeting(
    "met |= any(libc.lseek(n, 7, 0) > 0 for n in range(3, 16))"
  ),
  "locks_on_a_file": _meeting("met |= libc.flock(1, 6) == 0"),
  "locks_on_bytes": _meeting("met |= libc.fcntl(1, 37, bytes(32)) == 0"),
  "owner_of_a_file": _meeting("met |= libc.fcntl(1, 8, 1) == 0"),
  "flags_of_a_file": _meeting("met |= libc.fcntl(1, 4, 0o2000) == 0"),
  "size_of_a_pipe": _meeting(
    "met |= any(libc.fcntl(n, 1031, 1 << 20) > 0 for n in range(16))"
  ),
  "bytes_in_a_pipe": _meeting(
    "met |= any(libc.ioctl(n, 0x541B, bytes(4)) == 0 for n in range(16))"
  ),
  "reading_the_report": _meeting(
    "met |= any(libc.read(n, bytes(9), 9) > 0 for n in range(16))"
  ),
  "memory": _meeting("met |= libc.syscall(29, 77, 4096, 0o1666) >= 0"),
  "semaphores": _meeting("met |= libc.syscall(64, 77, 1, 0o1666) >= 0"),
  "messages": _meeting("met |= libc.syscall(68, 77, 0o1666) >= 0"),
  "keys": _meeting("met |= libc.syscall(248, b'user', b'k', b'v', 1, -3) > 0"),
  "abstract_sockets": _meeting("met |= libc.socket(1, 2, 0) >= 0"),
  "wait_for_a_sibling": _meeting("met |= libc.waitpid(-1, 0, 1) >= 0"),
  "number_of_the_request": gives(
    "import gc\ndef f():\n  words = ('Child', 'Requests', 'Replies')\n"
    "  return [type(o).__name__ for o in gc.get_objects()"
    " if type(o).__name__ in words]",
    "[]",
    copies=2,
  ),
}


def _named(prefix, cases):
  return {f"{prefix}_{name}": case for name, case in cases.items()}


CASES = (
  _named("clock", CLOCKS)
  | _named("futex", FUTEXES)
  | _named("pages", PAGES)
  | _named("process", PROCESSES)
  | _named("channel", CHANNELS)
)
