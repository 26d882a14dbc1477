"""Tests that scripts print the same as in a process of their own.

The reference is the same script, run by Python in an empty folder, unbuffered:
with a buffer, bytes would overtake text that was written earlier.
"""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

from azr_jax.executor import Executor, scripts
from azr_jax.executor.child import libraries
from azr_jax.executor.settings import profile

SCRIPTS = {
  "text": """
with open("a.txt", "w") as file:
  file.write("one\\ntwo\\n")
with open("a.txt", "a") as file:
  print("three", file=file)
print(open("a.txt").readlines(), sum(1 for _ in open("a.txt")))
""",
  "bytes": """
with open("a", "wb+") as file:
  file.write(b"abcdef"); file.seek(2); print(file.read(2), file.tell())
with open("a", "r+b") as file:
  file.seek(0, 2); file.write(b"g")
print(open("a", "rb").read(), open("a").read(3))
""",
  "wrong_files": """
for attempt in (
  lambda: open("none"), lambda: open("f/a", "w"), lambda: open("a", "rw"),
  lambda: open("a", "x"), lambda: open(".", "w"), lambda: open("a").write("x"),
  lambda: open("a", "rb").write(b""), lambda: open("a", "w").read(),
  lambda: open(9), lambda: open("a", "rtb"), lambda: open("/etc/passwd0"),
):
  open("a", "w").close()
  try: print(attempt())
  except (OSError, ValueError) as error: print(type(error).__name__, error)
""",
  "os": """
import os
os.makedirs("d/e"); open("d/e/f", "w").write("12")
print(os.path.exists("d/e/f"), os.path.isdir("d"), os.path.getsize("d/e/f"))
print(os.listdir("d"), [(a, b, c) for a, b, c in os.walk("d")])
os.rename("d/e/f", "d/g"); print(os.path.isfile("d/e/f"))
print(os.stat("d/g").st_size)
os.remove("d/g"); os.rmdir("d/e")
for attempt in (
  lambda: os.remove("d/g"), lambda: os.mkdir("d"), lambda: os.mkdir("x/y"),
  lambda: os.listdir("x"), lambda: os.stat("x"), lambda: os.rename("x", "y"),
):
  try: attempt()
  except OSError as error: print(type(error).__name__, error)
""",
  "pathlib": """
from pathlib import Path
Path("d").mkdir(); (Path("d") / "a.json").write_text("[1]")
print(Path("d/a.json").read_text(), Path("d").exists(), Path("e").exists())
print([str(path) for path in Path(".").glob("d/*.json")], Path("d").is_dir())
Path("d/a.json").unlink(); print(list(Path("d").iterdir()))
""",
  "formats": """
import csv, glob, gzip, io, json, pickle, shelve, shutil, sqlite3, zipfile
with open("a.csv", "w", newline="") as file:
  csv.writer(file).writerows([["x", "y"], [1, "a,b"]])
print(list(csv.DictReader(open("a.csv"))))
json.dump({"a": [1]}, open("a.json", "w")); print(json.load(open("a.json")))
with gzip.open("a.gz", "wt") as file: file.write("zipped")
print(gzip.open("a.gz", "rt").read(), sorted(glob.glob("a.*")))
with zipfile.ZipFile("a.zip", "w") as file: file.writestr("x", "y")
print(zipfile.ZipFile("a.zip").read("x"))
class Point:
  def __init__(self, x): self.x = x
pickle.dump(Point(3), open("p", "wb")); print(pickle.load(open("p", "rb")).x)
print(sqlite3.connect(":memory:").execute("select 1 + 1").fetchone())
""",
  "input": "try: input('? ')\nexcept EOFError as error: print(error)\n"
  "import sys\nprint(repr(sys.stdin.read()), list(sys.stdin), open(0).read())",
  "surroundings": """
import sys, argparse, logging, dataclasses
print(__name__, sys.argv, argparse.ArgumentParser().parse_args(), bool(__doc__))
logging.warning("a warning"); sys.stdout.buffer.write(b"bytes\\n")
@dataclasses.dataclass
class A: x: "int" = 1
print(A(), A.__module__, sys.modules["__main__"].A is A)
sys.stdout.reconfigure(encoding="utf-8"); print("done", flush=True)
""",
  "threads": """
import threading
found, lock = [], threading.Lock()
def work(i):
  with lock: found.append(i)
threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(found), [t.is_alive() for t in threads], threading.active_count())
class Own(threading.Thread):
  def run(self): print("own", self.name != "MainThread")
own = Own(daemon=True); own.start(); own.join(timeout=1)
try: own.start()
except RuntimeError as error: print(error)
""",
  "executors": """
from concurrent.futures import *
import concurrent.futures as futures
def square(x): return x * x
def fail(x): raise ValueError(x)
for kind in (ThreadPoolExecutor, futures.ProcessPoolExecutor):
  with kind(max_workers=2) as pool:
    print(list(pool.map(square, range(4))), pool.submit(square, 5).result())
    made = [pool.submit(square, x) for x in range(4)]
    print(sorted(f.result() for f in as_completed(made)), len(wait(made).done))
    failed = pool.submit(fail, "no")
    print(repr(failed.exception()), failed.done())
  try: pool.submit(square, 1)
  except RuntimeError as error: print(error)
""",
  "processes": """
import multiprocessing as mp
from multiprocessing.pool import ThreadPool
def square(x): return x * x
def put(queue, x): queue.put(x)
if __name__ == "__main__":
  with mp.Pool(2) as pool:
    print(pool.map(square, range(3)), pool.starmap(pow, [(2, 3)]))
    print(sorted(pool.imap_unordered(square, [3, 4])), pool.apply(square, (5,)))
    print(pool.apply_async(square, (6,)).get(timeout=9), pool.map_async(
      square, [7]).get())
  queue = mp.Queue()
  process = mp.Process(target=put, args=(queue, "sent"))
  process.start(); print(queue.get()); process.join(); print(process.exitcode)
  print(ThreadPool(2).map(square, [8]), mp.Value("i", 3).value)
  shared = mp.Manager().dict(); shared["x"] = 1; print(dict(shared))
""",
  "asyncio": """
import asyncio
async def one(x):
  await asyncio.sleep(0.01 * x); return x
async def main():
  print(await asyncio.gather(*map(one, range(3))))
  try: await asyncio.wait_for(one(9), 0.01)
  except asyncio.TimeoutError: print("late")
  queue = asyncio.Queue(); await queue.put(1); print(await queue.get())
  loop = asyncio.get_running_loop()
  print(await loop.run_in_executor(None, abs, -3))
asyncio.run(main())
""",
  "library_errors": "import json\njson.loads('{')",
  "argument_errors": "import argparse\nargparse.ArgumentParser().error('bad')",
  "generator_errors": "import statistics\nstatistics.mean([])",
  "imports": "import tomllib, wave, xml.dom.minidom, email.message\n"
  "import http.client, urllib.request, ftplib, mailbox, unittest.mock, bdb\n"
  "print(tomllib.loads('a = 1'))",
  "no_such_module": "import no_such_module",
}


@pytest.fixture(scope="module")
def script_pool():
  with Executor(workers=1, timeout_s=20.0, memory_mb=512) as executor:
    yield executor


def run(executor, script, names=()):
  job = scripts.script_job(script, names)
  return scripts.read_result(executor.submit(job).result())


def python(script, folder):
  """Runs a script in a folder; returns (failed, output, errors)."""
  (folder / "run.py").write_text(script)
  done = subprocess.run(
    [sys.executable, "-u", "run.py"],
    cwd=folder,
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    check=False,
  )
  return (
    done.returncode != 0,
    done.stdout,
    done.stderr.replace(f"{folder}/", ""),
  )


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_prints_what_it_prints_alone(script_pool, name, tmp_path):
  failed, output, errors = python(SCRIPTS[name], tmp_path)
  result = run(script_pool, SCRIPTS[name])
  assert result.status == ("error" if failed else "ok"), result
  assert str(result.output) == output
  assert _without_source(str(result.errors)) == _without_source(errors)


def _without_source(errors):
  """Drops source lines, because the sandbox has none of the libraries'."""
  return [line for line in errors.splitlines() if not line.startswith("    ")]


def test_randomness_is_the_same_in_every_run(script_pool):
  script = """
import random, secrets, uuid, tempfile, os
print(random.random(), secrets.token_hex(4), uuid.uuid4(), os.urandom(3))
print(tempfile.mkdtemp() != tempfile.mkdtemp())
"""
  first = run(script_pool, script)
  assert first.status == "ok" and first == run(script_pool, script)
  assert str(first.output).endswith("True\n")


@pytest.mark.parametrize(
  "script, error",
  [
    ("import os; os.fork()", "PermissionError"),
    ("import subprocess; subprocess.run(['true'])", "PermissionError"),
    ("import socket; socket.socket()", "PermissionError"),
    ("import os; os.open('/etc/passwd', 0)", "PermissionError"),
    ("import os; os.kill(1, 0)", "PermissionError"),
    ("import os; os.system('true') and 1 / 0", "ZeroDivisionError"),
    ("import _thread; _thread.start_new_thread(print, ())", "RuntimeError"),
    ("open('/etc/passwd')", "FileNotFoundError"),
    ("import io; io.FileIO('/etc/passwd')", "PermissionError"),
  ],
)
def test_the_walls_hold(script_pool, script, error):
  result = run(script_pool, script)
  assert result.status == "error" and error in str(result.errors)


def test_nothing_stays_for_the_next_script(script_pool):
  for _ in range(4):  # There are fewer zygotes, so one runs two scripts.
    result = run(
      script_pool, "import os\nprint(os.listdir('.'))\nopen('a', 'w')"
    )
    assert str(result.output) == "[]\n"


def test_zygotes_share_no_memory_that_programs_could_write(script_pool):
  """Otherwise programs of a zygote could find what earlier ones left there."""
  # Once a script has run, the zygotes have started.
  assert run(script_pool, "").status == "ok"
  pids = script_pool.processes()
  assert len(pids) > 3
  for pid in pids:
    try:
      maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
    except PermissionError:
      pytest.skip("only root may look")
    modes = [line.split()[1] for line in maps.splitlines()]
    assert "rw-p" in modes
    assert not [mode for mode in modes if mode[1] == "w" and mode[3] == "s"]


LIBRARIES = {
  "numpy": (
    "import numpy as np\nnp.save('a.npy', np.arange(3))\n"
    "print(np.load('a.npy'))",
    "[0 1 2]",
  ),
  "sympy": (
    "from sympy import *\nx = Symbol('x')\n"
    "print(integrate(1 / (x**4 + 1), (x, 0, oo)))\n"
    "from sympy.physics.units import kilometer, meter, convert_to\n"
    "print(convert_to(kilometer, meter))\n"
    "from sympy.parsing.sympy_parser import parse_expr\n"
    "print(parse_expr('x**2 + 1'))",
    "sqrt(2)*pi/4\n1000*meter\nx**2 + 1",
  ),
  "scipy": (
    "from scipy import optimize, stats, signal, ndimage\nimport scipy.odr\n"
    "print(round(optimize.brentq(lambda x: x**2 - 2, 0, 2), 6),\n"
    "  stats.binom(4, 0.5).pmf(2).round(3), signal.find_peaks([0, 1, 0])[0])",
    "1.414214 0.375 [1]",
  ),
  "networkx": (
    "import networkx as nx\ngraph = nx.karate_club_graph()\n"
    "print(nx.diameter(graph), nx.shortest_path_length(graph, 0, 33))\n"
    "print(len(nx.community.louvain_communities(graph, seed=1)))",
    "5 2\n4",
  ),
  "pandas": (
    "import pandas as pd\n"
    "frame = pd.DataFrame({'a': [1, 2, 2], 'b': [4, 5, 6]})\n"
    "frame.to_csv('a.csv', index=False)\n"
    "frame = pd.read_csv('a.csv').groupby('a').b.agg(['sum', 'max'])\n"
    "print(frame)\nframe.to_pickle('a'); print(pd.read_pickle('a').shape)",
    "   sum  max\na          \n1    4    4\n2   11    6\n(2, 2)",
  ),
}


def test_the_libraries_are_all_tried():
  assert set(LIBRARIES) == set(scripts.LIBRARIES)


@pytest.mark.parametrize(
  "name",
  [
    name if name == "numpy" else pytest.param(name, marks=pytest.mark.slow)
    for name in LIBRARIES
  ],
)
def test_a_library_works_within_the_memory_of_the_profile(name):
  pytest.importorskip(name, reason="needs the extra scripts")
  script, output = LIBRARIES[name]
  memory_mb = profile("code_interpreter")["memory_mb"]
  with Executor(workers=1, timeout_s=60.0, memory_mb=memory_mb) as executor:
    result = run(executor, script, (name,))
  assert (str(result.output), str(result.errors)) == (output + "\n", "")


@pytest.mark.parametrize(
  "name, extra",
  [
    ("pandas", "[scripts]"),
    ("networkx", "[scripts]"),
    ("math_verify", "[eval]"),
  ],
)
def test_a_missing_library_is_named_with_its_extra(monkeypatch, name, extra):
  find = importlib.util.find_spec
  monkeypatch.setattr(
    importlib.util, "find_spec", lambda n: None if n == name else find(n)
  )
  with pytest.raises(ValueError) as refusal:
    libraries.check(("numpy", name))
  message = str(refusal.value)
  assert name in message and f"pip install 'azr_jax{extra}'" in message
  assert "\n" not in message
