"""User functions in separate processes: limits, failures, closures."""

import dataclasses
import os
import re
import subprocess
import sys
import textwrap
import time
import xml.etree.ElementTree

import numpy as np
import pytest

from azr_jax.config import named
from azr_jax.functions import by_value, pool, spec

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))

FILE = """
import asyncio, os, sys, time
from decimal import Decimal
from fractions import Fraction
import numpy as np
from sibling import TWO

def double(x):
  print("a function may print")
  return TWO * x

def scalar(): return np.float32(0.5)
def array(): return np.arange(3)
def long(): return np.longdouble(0.25)
def decimal(): return {"x": Decimal("0.75"), "y": Fraction(1, 4)}
def digits():
  sys.set_int_max_str_digits(0)
  return 10**5000
def fraction(): return Fraction(10**400)
def raises(): raise KeyError("answer")
def strange(): return object()
def hangs():
  while True: pass
def sleeps(): time.sleep(1000)
def dies(): os._exit(3)
def leaves(): sys.exit(1)
def dies_once(path):
  if not os.path.exists(path):
    open(path, "w").close()
    os.kill(os.getpid(), 9)
  return "alive"
def pid(): return os.getpid()
def leaves_a_child():
  # A daemon: its parent ends, and it has a session of its own.
  read, write = os.pipe()
  if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
      os.write(write, str(os.getpid()).encode())
      time.sleep(1000)
    os._exit(0)
  return int(os.read(read, 20))

async def waits(seconds):
  await asyncio.sleep(seconds)
  return os.getpid()
"""
HEAVY = """
import asyncio, os, time

def fills(mebibytes):
  held = b"x" * (mebibytes << 20)
  time.sleep(1000 if mebibytes > 200 else 0)
  return len(held)
async def shares(mebibytes):
  held = b"x" * (mebibytes << 20)
  await asyncio.sleep(1000 if mebibytes > 200 else 0.3)
  return len(held)
def forks_and_fills():
  if os.fork() == 0:
    fills(400)
  time.sleep(1000)

def one(): return 1
"""
NAMES = re.findall(r"def (\w+)", FILE)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
  folder = tmp_path_factory.mktemp("functions")
  (folder / "sibling.py").write_text("TWO = 2\n")
  (folder / "json.py").write_text("raise ImportError('not the library')\n")
  path = folder / "mine.py"
  path.write_text(FILE)
  return path


@pytest.fixture(scope="module")
def functions(file):
  specs = [spec.Function(name, f"{file}:{name}") for name in NAMES]
  with pool.FunctionPool(specs, workers=2, timeout_s=1.0) as made:
    yield lambda name, **arguments: made.submit(NAMES.index(name), arguments)


def test_values_come_back_as_plain_ones(functions):
  assert functions("double", x=21).result(60).value == 42
  assert functions("scalar").result(60).value == 0.5
  assert functions("array").result(60).value == [0, 1, 2]
  assert functions("long").result(60).value == 0.25
  assert functions("decimal").result(60).value == {"x": 0.75, "y": 0.25}


@pytest.mark.parametrize(
  "name, failure, message",
  [
    ("raises", "raised", r"KeyError: 'answer' \(mine.py:20\)"),
    ("leaves", "raised", "SystemExit: 1"),
    ("strange", "wrong_type", "returned <object object.* of type object"),
    ("digits", "wrong_type", "an integer has more than 4000 digits"),
    ("fraction", "wrong_type", "too large"),
    ("hangs", "timeout", "not done in 1 s"),
    ("sleeps", "timeout", "its process was killed"),
    ("dies", "died", r"its process ended \(3\)"),
  ],
)
def test_a_failure_is_an_answer_and_others_go_on(
  functions, name, failure, message
):
  failed = functions(name)
  others = [functions("double", x=x) for x in range(4)]
  assert [one.result(60).value for one in others] == [0, 2, 4, 6]
  answer = failed.result(60)
  assert answer.failure == failure and answer.value is None
  assert re.search(message, answer.message)


def test_a_process_that_is_killed_from_outside_costs_nothing(
  functions, tmp_path
):
  answer = functions("dies_once", path=str(tmp_path / "mark")).result(60)
  assert (answer.value, answer.failure) == ("alive", "")


def test_coroutines_share_a_process_and_wait_beside_each_other(functions):
  begun = time.monotonic()
  calls = [functions("waits", seconds=0.4) for _ in range(20)]
  assert len({call.result(60).value for call in calls}) <= 2
  assert time.monotonic() - begun < 0.4 * 20


def test_a_coroutine_without_end_fails_and_its_neighbours_do_not(functions):
  late = functions("waits", seconds=1000)
  others = [functions("waits", seconds=0.1) for _ in range(8)]
  assert not any(other.result(60).failure for other in others)
  assert late.result(60).failure == "timeout"


def test_no_process_is_left(file):
  made = pool.FunctionPool([spec.Function("p", f"{file}:pid")], 2, 5.0)
  pids = {made.submit(0, {}).result(60).value for _ in range(3)}
  assert pids == set(made.processes())
  hanging = pool.FunctionPool(
    [spec.Function(name, f"{file}:{name}") for name in NAMES], 1, 60.0
  )
  child = hanging.submit(NAMES.index("leaves_a_child"), {}).result(60).value
  call = hanging.submit(NAMES.index("hangs"), {})
  pids |= {child, *hanging.processes()}
  os.kill(child, 0)
  made.close()
  hanging.close()
  assert call.cancelled()
  for pid in pids:
    with pytest.raises(ProcessLookupError):
      os.kill(pid, 0)
  with pytest.raises(RuntimeError, match="closed"):
    made.submit(0, {})


# A trainer that is killed while a function with a child process runs.
KILLED = """
import os, signal, sys
from azr_jax.functions import pool, spec
names = "leaves_a_child", "hangs"
made = pool.FunctionPool(
  [spec.Function(name, f"{sys.argv[1]}:{name}") for name in names], 1, 60.0
)
child = made.submit(0, {}).result(60).value
made.submit(1, {})
print(*made.processes(), child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_no_process_is_left_by_a_trainer_that_is_killed(file):
  done = subprocess.run(
    [sys.executable, "-c", KILLED, str(file)],
    capture_output=True,
    text=True,
    check=False,
    cwd=ROOT,
  )
  left = [int(pid) for pid in done.stdout.split()]
  assert len(left) == 2, done.stderr
  deadline = time.monotonic() + 60
  while left and time.monotonic() < deadline:
    left = [pid for pid in left if os.path.exists(f"/proc/{pid}")]
    time.sleep(0.02)
  assert not left


@pytest.fixture(name="heavy")
def start_heavy(tmp_path):
  """Starts a pool with a memory limit."""
  names = re.findall(r"def (\w+)", HEAVY)
  path = tmp_path / "heavy.py"
  path.write_text(HEAVY)
  functions = [spec.Function(name, f"{path}:{name}") for name in names]
  with pool.FunctionPool(functions, 1, 600.0, memory_gib=0.3) as made:
    yield lambda name, **arguments: made.submit(names.index(name), arguments)


def test_memory_costs_the_call_whose_process_and_children_have_it(heavy):
  calls = heavy("forks_and_fills"), heavy("one")
  assert [call.result(600).failure for call in calls] == ["memory", ""]
  message = calls[0].result().message
  assert "exceeded memory_gib=0.3 or 256 processes and were killed" in message


@pytest.mark.slow  # Seven processes are started.
def test_memory_of_one_of_several_coroutines_costs_that_one(heavy):
  calls = [heavy("fills", mebibytes=n) for n in (400, 1)]
  calls += [heavy("shares", mebibytes=n) for n in (1, 1, 400, 1)]
  kinds = [call.result(600).failure for call in calls]
  assert kinds == ["memory", "", "", "", "memory", ""]


def test_functions_that_need_more_memory_are_refused(file):
  (file.parent / "big.py").write_text(
    "import time\nx = b'x' * (400 << 20)\ntime.sleep(1000)\ndef f(): ...\n"
  )
  where = f"{file.parent}/big.py:f"
  with pytest.raises(ValueError, match="functions f: .* memory_gib=0.3"):
    pool.FunctionPool([spec.Function("f", where)], 1, 1.0, memory_gib=0.3)


@pytest.mark.parametrize(
  "name, expected",
  [
    ("mine.py:nothing", "has no function or class 'nothing': expected one of"),
    ("absent.py:f", "there is no file"),
    ("broken.py:f", r"cannot be imported: ZeroDivisionError.*\(broken.py:1\)"),
    ("no.such.module:f", "No module named"),
  ],
)
def test_a_function_that_cannot_be_loaded_is_one_line(file, name, expected):
  (file.parent / "broken.py").write_text("1 / 0\n")
  where = name if name.startswith("no.") else str(file.parent / name)
  with pytest.raises(ValueError, match=expected) as refusal:
    pool.FunctionPool([spec.Function("f", where)], 1, 1.0)
  assert "\n" not in str(refusal.value)


def test_what_a_function_takes():
  async def f(prompt, *, answer="", **columns): ...

  taken = spec.signature(f)
  assert taken.parameters == ("prompt", "answer")
  assert taken.required == ("prompt",)
  assert taken.takes_any and taken.is_async
  with pytest.raises(ValueError, match="'x' can only be given by position"):
    spec.signature(eval("lambda x, /: 0"))


# Stands for the cells of a notebook, which run in a process's `__main__`.
NOTEBOOK = textwrap.dedent("""
  import abc, dataclasses, enum, re, sys
  import xml.etree.ElementTree
  from azr_jax.functions import pool, spec

  class Word(enum.Enum):
    YES = "yes"

  WORDS = {Word.YES: 1.0}
  PATTERN = re.compile("y+")

  @dataclasses.dataclass
  class Score:
    value: float = 0.0
    def doubled(self):
      return Score(2 * self.value)

  class Base(abc.ABC):
    @abc.abstractmethod
    def score(self): ...

  class Child(Base):
    def __init__(self):
      super().__init__()
    def score(self):
      return dataclasses.asdict(Score(3.0).doubled())["value"]

  def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)

  def outer(weight):
    def inner(text):
      def nested():
        return WORDS[Word(text)]
      return weight * nested() + len(PATTERN.findall(text)) + depth(3)
    return inner

  def tree(text):
    return xml.etree.ElementTree.fromstring(text).tag

  if __name__ == "__main__":
    made = [outer(10.0), lambda text: Child().score(), tree]
    functions = [spec.given(one, f"f{i}") for i, one in enumerate(made)]
    with pool.FunctionPool(functions, 1, 60.0) as p:
      texts = ["yes", "", "<a/>"]
      print([p.submit(i, {"text": t}).result(100).value
             for i, t in enumerate(texts)])
""")


def test_functions_of_a_notebook_are_sent_by_their_code():
  done = subprocess.run(
    [sys.executable, "-"],
    input=NOTEBOOK,
    capture_output=True,
    text=True,
    check=False,
    cwd=ROOT,
  )
  assert done.stdout == "[14.0, 6.0, 'a']\n", done.stderr


def test_a_function_of_a_file_is_sent_by_its_code(tmp_path):
  """Another process cannot import the module that the file became."""
  file = tmp_path / "own_reward.py"
  file.write_text("BONUS = 2\n\ndef reward(x):\n  return x + BONUS\n")
  data = by_value.dumps(named.find(f"{file}:reward"))
  program = (
    "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read())(3))"
  )
  run = subprocess.run(
    [sys.executable, "-c", program], input=data, capture_output=True, check=True
  )
  assert run.stdout == b"5\n"


def test_a_closure_comes_back_as_it_was():
  calls = []

  @dataclasses.dataclass
  class Local:
    x: int = 3

  def f(n):
    calls.append(n)
    return np.sum([n, len(calls)]), xml.etree.ElementTree.Element("a").tag

  again = by_value.loads(by_value.dumps(f))
  assert again(2) == (3, "a") and again(2) == (4, "a") and not calls


def test_what_cannot_be_sent_is_named():
  file = sys.stderr

  def logs(x):
    file.write(x)

  with pytest.raises(TypeError, match="logs cannot be sent .*FILE.py:NAME"):
    by_value.dumps(logs)
