"""Programs that start, signal, trace or reconfigure processes, or connect."""

from tests.executor.hostile_case import (
  ABSENT,
  DENIED,
  Case,
  denied,
  ends,
  gives,
  refused,
)

# The child of a successful fork must not continue as a second program.
_FORK = "os.fork() or os._exit(0)"
# The limit on processes raises BlockingIOError.
_NO_FORK = (*DENIED, "BlockingIOError")

STARTING = {
  "fork": denied(_FORK, errors=_NO_FORK),
  "fork_by_the_c_library": refused("fork() or os._exit(0)"),
  "clone": refused(
    "syscall(435, bytes(32) + b'\\x11' + bytes(55), 88) or os._exit(0)"
  ),
  "fork_with_a_terminal": denied(
    "os.forkpty()[0] or os._exit(0)", errors=_NO_FORK
  ),
  # Bounded, because some runs have no sandbox.
  "fork_bomb": denied(f"[{_FORK} for _ in range(50)]", errors=_NO_FORK),
  "fork_bomb_that_catches": gives(
    "import os\ndef f():\n  started = 0\n  for _ in range(50):\n"
    f"    try:\n      {_FORK}\n      started += 1\n"
    "    except OSError: pass\n  return started",
    "0",
  ),
  "detach_by_two_forks": denied(
    "os.fork() or [os.setsid(), os.fork() and os._exit(0), time.sleep(30),"
    " os._exit(0)]",
    "os, time",
    _NO_FORK,
  ),
  "exec": denied("os.execv('/bin/true', ['true'])"),
  "exec_of_this_python": denied("os.execv('/proc/self/exe', ['x', '-c', ''])"),
  "spawn": denied("os.posix_spawn('/bin/true', ['true'], {})", errors=_NO_FORK),
  "spawn_without_waiting": gives(
    "import os\ndef f():\n  try:\n"
    "    return os.spawnv(os.P_NOWAIT, '/bin/true', ['true']) > 0\n"
    "  except OSError: return False",
    "False",
  ),
  "shell": gives(
    "import os\ndef f():\n  return os.system('touch WATCH/new') == 0", "False"
  ),
  "popen": denied("os.popen('true').read()", "os", (*DENIED, *ABSENT)),
  "subprocess": denied(
    "subprocess.run(['true'])", "subprocess", (*DENIED, *ABSENT)
  ),
  "subprocess_without_its_cover": denied(
    "_posixsubprocess.fork_exec()",
    "_posixsubprocess",
    (*ABSENT, "TypeError"),
  ),
  "multiprocessing": denied(
    "multiprocessing.Process(target=print).start()",
    "multiprocessing",
    (*ABSENT, *_NO_FORK),
  ),
  "process_pool": denied(
    "concurrent.futures.ProcessPoolExecutor().submit(print)",
    "concurrent.futures.process",
    (*ABSENT, *DENIED),
  ),
  "thread": denied(
    "_thread.start_new_thread(print, ())", "_thread", ("RuntimeError", "error")
  ),
  "thread_with_its_cover": denied(
    "threading.Thread(target=print).start()", "threading", ("RuntimeError",)
  ),
  "thread_bomb": denied(
    "[_thread.start_new_thread(print, ()) for _ in range(50)]",
    "_thread",
    ("RuntimeError", "error"),
  ),
  "thread_of_the_fault_handler": denied(
    "faulthandler.dump_traceback_later(1, file=1)",
    "faulthandler",
    ("RuntimeError",),
  ),
  "asyncio": denied("asyncio.new_event_loop()", "asyncio", (*ABSENT, *DENIED)),
}

SIGNALS = {
  "kill_the_parent": denied("os.kill(os.getppid(), 9)"),
  "stop_the_parent": denied("os.kill(os.getppid(), 19)"),
  # Signal 0 asks whether a signal would be delivered, and delivers none.
  "kill_everyone": denied("os.kill(-1, 0)"),
  "kill_the_trainer": denied("os.kill(TRAINER, 0)"),
  "kill_init": denied("os.kill(1, 0)"),
  "kill_the_group": denied("os.killpg(0, 9)"),
  "kill_itself": denied("os.kill(os.getpid(), 9)"),
  "kill_itself_by_raising": denied("signal.raise_signal(9)", "signal"),
  "kill_its_thread": denied(
    "signal.pthread_kill(_thread.get_ident(), 9)", "signal, _thread"
  ),
  "stop_itself": denied("os.kill(os.getpid(), 19)"),
  "handle_on_the_parent": denied("os.pidfd_open(os.getppid())"),
  "signal_by_handle": denied(
    "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 0)", "os, signal"
  ),
  "queue_a_signal": refused("sigqueue(os.getppid(), 0, None)"),
  "alarm": gives(
    "import signal\ndef f():\n  signal.alarm(99)\n"
    "  return signal.alarm(0) in (98, 99)",
    "False",
  ),
  "interval_timer": denied(
    "signal.setitimer(signal.ITIMER_REAL, 9)",
    "signal",
    (*DENIED, "itimer_error"),
  ),
  "kernel_timer": refused("timer_create(0, None, b'\\0' * 64)"),
  "wait_for_a_signal": denied("signal.sigwait([10])", "signal"),
  "ignore_every_signal": ends(
    "import signal\ndef f():\n"
    "  for number in set(signal.Signals) - {9, 19}:\n"
    "    signal.signal(number, signal.SIG_IGN)\n"
    "  while True: pass"
  ),
  "block_every_signal": ends(
    "import signal\ndef f():\n"
    "  signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
    "  while True: pass"
  ),
  "handle_a_crash": Case(
    "import faulthandler, signal\ndef f():\n"
    "  signal.signal(11, signal.SIG_IGN)\n  signal.signal(11, print)\n"
    "  faulthandler._read_null()\n  return 'allowed'",
    statuses=("error", "timeout"),
    errors=("Signal11", "TimeoutError"),
  ),
}

KERNEL = {
  "trace_the_parent": refused("ptrace(0x4206, os.getppid(), 0, 0)"),
  "be_traced": refused("ptrace(0, 0, 0, 0)"),
  "read_the_parents_memory": refused(
    "process_vm_readv(os.getppid(), here, 1, there, 1, 0)",
    "libc.malloc.restype = libc.__init__.__globals__['c_void_p']\n"
    "size = (8).to_bytes(8, 'little')\n"
    "here = libc.malloc(8).to_bytes(8, 'little') + size\n"
    "there = id(os).to_bytes(8, 'little') + size",
  ),
  "outlive_the_parent": refused("prctl(1, 0, 0, 0, 0)"),
  "be_dumpable": refused("prctl(4, 1, 0, 0, 0)"),
  "own_filter": refused("prctl(22, 1, 0, 0, 0)"),
  "executable_memory": refused("mmap(None, 4096, 7, 0x22, -1, 0)"),
  "executable_memory_later": refused(
    "mprotect(libc.mmap(None, 4096, 3, 0x62, -1, 0), 4096, 5)",
    "kinds = libc.__init__.__globals__\n"
    "libc.mmap.restype = kinds['c_void_p']\n"
    "libc.mprotect.argtypes = [kinds['c_void_p'], *[kinds['c_size_t']] * 2]",
  ),
  "readable_means_executable": refused("personality(0x0400000)"),
  "numbers_of_another_architecture": refused("syscall(0x40000000 + 39)"),
  "user_namespace": refused("unshare(0x10000000)"),
  "network_namespace": refused("unshare(0x40000000)"),
  "become_root": refused("setresuid(0, 0, 0)"),
  "become_nobody": refused("setresuid(65534, 65534, 65534)"),
  "change_groups": refused("setgroups(0, None)"),
  "take_capabilities": refused(
    "capset(b'\\x22\\x05\\x08\\x20' + bytes(4), bytes(24))"
  ),
  "host_name": denied("os.uname()"),
  "set_the_host_name": refused("sethostname(b'HOST', len(b'HOST'))"),
  "session": denied("os.setsid()"),
  "process_group": denied("os.setpgid(0, 0)"),
  "priority": denied("os.nice(1)"),
  "priority_of_the_parent": denied(
    "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)"
  ),
  "scheduler": denied("os.sched_setscheduler(0, 3, os.sched_param(0))"),
  "cores": denied("os.sched_setaffinity(0, os.sched_getaffinity(0))"),
  "limit_on_memory": denied(
    "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "resource",
    (*DENIED, "ValueError"),
  ),
  "limit_on_processes": denied(
    "resource.setrlimit(resource.RLIMIT_NPROC, (9, 9))",
    "resource",
    (*DENIED, "ValueError"),
  ),
  "limit_of_the_parent": denied(
    "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "os, resource",
  ),
  "read_a_limit": denied("resource.getrlimit(resource.RLIMIT_AS)", "resource"),
  "bpf": refused("syscall(321, 0, bytes([2, 0, 0, 0] + [4, 0, 0, 0] * 3), 16)"),
  "io_uring": refused("syscall(425, 1, bytes(120))"),
  "memory_faults_by_hand": refused("syscall(323, 1)"),
  "key_ring": refused("syscall(250, 0, -3, 1)"),
  "shared_memory": refused("shmctl(libc.shmget(0, 4096, 0o1666), 0, None)"),
  "semaphore": refused("semctl(libc.semget(0, 1, 0o1666), 0, 0)"),
  "message_queue": refused("msgctl(libc.msgget(0, 0o1666), 0, None)"),
  "sleep": denied("time.sleep(0.1)", "time"),
  "sleep_by_the_c_library": refused("usleep(1000)"),
  "poll": denied("select.poll().poll(1)", "select"),
  "select": denied("select.select([], [], [], 0.1)", "select"),
}

_ADDRESS = "(2).to_bytes(2, 'little') + (PORT).to_bytes(2, 'big') + "
_LOCALHOST = f"{_ADDRESS}bytes([127, 0, 0, 1]) + bytes(8)"
_NEWS = f"address = {_LOCALHOST}"

NETWORK = {
  "socket_module": denied("socket.socket()", "socket", (*DENIED, *ABSENT)),
  "socket_without_its_cover": denied(
    "_socket.socket()", "_socket", (*DENIED, *ABSENT)
  ),
  "socket_pair": denied("_socket.socketpair()", "_socket", (*DENIED, *ABSENT)),
  "internet_socket": refused("socket(2, 1, 0)"),
  "internet_socket_6": refused("socket(10, 1, 0)"),
  "raw_socket": refused("socket(2, 3, 1)"),
  "packet_socket": refused("socket(17, 3, 0)"),
  "netlink_socket": refused("socket(16, 3, 0)"),
  "unix_socket": refused("socket(1, 1, 0)"),
  "virtual_machine_socket": refused("socket(40, 1, 0)"),
  "crypto_socket": refused("socket(38, 5, 0)"),
  "unix_socket_pair": refused("socketpair(1, 1, 0, bytes(8))"),
  "connect_to_the_trainer": refused(
    "connect(libc.socket(2, 1, 0), address, 16)", _NEWS
  ),
  "datagram_to_the_trainer": refused(
    "sendto(libc.socket(2, 2, 0), b'x', 1, 0, address, 16)", _NEWS
  ),
  "abstract_socket_of_the_trainer": refused(
    "connect(libc.socket(1, 1, 0), address, len(address))",
    "address = b'\\1\\0\\0PREFIX'",
  ),
  "listen": refused("listen(handle, 1)", "handle = libc.socket(2, 1, 0)"),
  "name_lookup": denied(
    "http.client.HTTPConnection('localhost', PORT).connect()",
    "http.client",
    (*ABSENT, *DENIED, "gaierror"),
  ),
  "web_request": denied(
    "urllib.request.urlopen('http://127.0.0.1:PORT')",
    "urllib.request",
    (*ABSENT, "URLError"),
  ),
}

CASES = STARTING | SIGNALS | KERNEL | NETWORK
