"""Programs that attack the machine, the pool, or the next program.

One attack per test; afterwards the pool must still work.
"""

import os

import pytest

FORGE = """
import os
def f():
  report = {!r}.encode()
  frame = len(report).to_bytes(8, "big") + report
  for fd in range(3, 16):
    try:
      os.write(fd, frame)
    except OSError:
      pass
  os._exit(0)
"""


@pytest.fixture(autouse=True)
def pool_survives(run):
  yield
  assert run("def f():\n  return [1]").outputs == ("[1]",)


def error_of(result):
  assert result.status == "error", result
  return result.error


def test_memory_bomb(run):
  code = "def f():\n  return len([0] * 10**9)"
  assert error_of(run(code)) == "MemoryError"


def test_slow_memory_bomb(run):
  code = "def f():\n  a = []\n  while True: a.append('x' * 10**6 + str(len(a)))"
  assert error_of(run(code)) == "MemoryError"


def test_fork_bomb(run):
  code = "import os\ndef f():\n  while True: os.fork()"
  assert error_of(run(code)) == "PermissionError"


def test_thread(run):
  code = "import _thread\ndef f():\n  _thread.start_new_thread(print, ())"
  assert error_of(run(code)) in ("RuntimeError", "error")


def test_read_file(run):
  code = "import os\ndef f():\n  return os.open('/etc/passwd', 0)"
  assert error_of(run(code)) == "PermissionError"


def test_write_file(run, tmp_path):
  tmp_path.chmod(0o777)
  path = tmp_path / "written"
  code = f"import os\ndef f():\n  return os.open({str(path)!r}, 0o102, 0o666)"
  assert error_of(run(code)) == "PermissionError"
  assert not path.exists()


def test_list_folder(run):
  code = "import os\ndef f():\n  return os.listdir('/')"
  assert error_of(run(code)) == "PermissionError"


def test_io_open(run):
  code = "import io\ndef f():\n  return io.open('/etc/passwd').read()"
  assert error_of(run(code)) == "PermissionError"


def test_open_is_not_a_builtin(run):
  assert error_of(run("def f():\n  return open('/etc/passwd')")) == "NameError"


def test_socket(run):
  code = "import socket\ndef f():\n  socket.socket()"
  assert error_of(run(code)) in ("ModuleNotFoundError", "PermissionError")


def test_ctypes(run):
  assert error_of(run("import ctypes\ndef f(): pass")) == "ModuleNotFoundError"


def test_exec(run):
  code = "import os\ndef f():\n  os.execv('/bin/true', ['true'])"
  assert error_of(run(code)) == "PermissionError"


@pytest.mark.parametrize("target", ["os.getppid()", "-1", "os.getpid()"])
def test_kill(run, target):
  code = f"import os\ndef f():\n  os.kill({target}, 9)"
  assert error_of(run(code)) == "PermissionError"


def test_kill_the_trainer(run):
  code = f"import os\ndef f():\n  os.kill({os.getpid()}, 9)"
  assert error_of(run(code)) == "PermissionError"


def test_sleep(run):
  code = "import time\ndef f():\n  time.sleep(100)"
  assert error_of(run(code)) == "PermissionError"


def test_raise_a_limit(run):
  code = (
    "import resource\ndef f():\n"
    "  resource.setrlimit(resource.RLIMIT_NPROC, (9, 9))"
  )
  assert run(code).status == "error"


def test_crash(run):
  code = (
    "import sys\nsys.setrecursionlimit(10**8)\n"
    "def g(x):\n  return [*map(g, [x])]\ndef f():\n  return g(1)"
  )
  assert run(code).status in ("error", "timeout")


def test_patched_builtins_are_gone_in_the_next_program(run):
  code = (
    "import builtins, math, json\ndef f():\n"
    "  builtins.len = math.sqrt = json.dumps = lambda *a: 7\n"
    "  return len([])"
  )
  run(code)
  code = "import math\ndef f():\n  return len([]), math.sqrt(4)"
  assert run(code).outputs == ("(0, 2.0)",)


def test_globals_are_gone_in_the_next_program(run):
  run("import math\nmath.leak = 1\ndef f():\n  return 1")
  code = "import math\ndef f():\n  return hasattr(math, 'leak')"
  assert run(code).outputs == ("False",)


def test_flood_of_prints(run):
  code = "def f():\n  for _ in range(2000): print('x' * 1000)\n  return 1"
  assert run(code).outputs == ("1",)


def test_flood_of_the_result_pipe(run):
  code = """
import os
def f():
  while True:
    for fd in range(3, 16):
      try:
        os.write(fd, b'x' * 65536)
      except OSError:
        pass
"""
  assert run(code).status in ("error", "timeout")


@pytest.mark.parametrize(
  "frame", [b"\0" * 8, b"\0" * 7 + b"\2{}", b"\0" * 7 + b"\4null", b"\xff" * 9]
)
def test_forged_frame_and_exit(run, frame):
  code = f"""
import os
def f():
  for fd in range(3, 16):
    try:
      os.write(fd, {frame!r})
    except OSError:
      pass
  os._exit(0)
"""
  assert run(code).status == "error"


def test_forged_frame_before_the_report(run):
  report = b"ok\n\n7"
  code = f"""
import os
def f():
  for fd in range(3, 16):
    try:
      os.write(fd, bytes(7) + bytes([{len(report)}]) + {report!r})
    except OSError:
      pass
  return 1
"""
  assert error_of(run(code)) == "NoReport"


@pytest.mark.parametrize(
  "report",
  [
    "ok\n\n1\n2",
    "ok\n\n'\u00e9'",
    "ok\n\n1\t",
    "ok\n\n" + "1" * 70_000,
    "ok\n\n",
    "ok\nValueError\n1",
    "error\n\n1",
    "error\n" + "long" * 500 + "\n",
    "blocked\n\x07\n",
    "fine\n\n1",
    "",
  ],
)
def test_forged_report_that_no_honest_child_writes(run, report):
  assert error_of(run(FORGE.format(report))) == "MalformedReport"


def test_forged_output_that_is_no_value_never_becomes_a_gold(run):
  code = FORGE.format("ok\n\nf(1)")
  assert error_of(run(code, runs=2)) == "MalformedReport"


def test_hostile_exception_name(run):
  code = "def f():\n  raise type('\\u00e9' * 1000, (Exception,), {})"
  assert len(error_of(run(code))) <= 80


def test_hostile_repr_is_not_called(run):
  code = (
    "class V:\n  def __repr__(self): return '1'\n"
    "  def __eq__(self, other): return True\ndef f():\n  return V()"
  )
  assert error_of(run(code)) == "NoText"


def test_deeply_nested_program(run):
  assert run("x = " + "(" * 5000 + ")" * 5000).status == "error"
  assert run("x = " + "-" * 100_000 + "1").status == "error"


def test_lone_surrogate_in_the_program(run):
  assert run("x = '\ud800'\ndef f():\n  return 1").status == "error"


def test_environment_holds_nothing_of_the_trainer(run, monkeypatch):
  code = "import os\ndef f():\n  return sorted(os.environ)"
  assert run(code).outputs == ("['LC_ALL', 'PATH', 'PYTHONHASHSEED', 'TZ']",)
