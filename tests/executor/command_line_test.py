import json
import subprocess
import sys

JOBS = [
  '{"id": "a", "code": "def f(x): return x", "inputs": ["1", "[2]"]}',
  "no json",
  '{"id": "b", "code": "def f(x): return x", "inputs": "12"}',
  '{"id": "c", "code": "def g(): return 1", "inputs": [""], "entry": "g"}',
  '{"id": "d", "code": "def f(): return 1", "inputs": [""], "runs": 2.0}',
  '{"id": "e", "code": "x", "inputs": [""], "forbidden": "os"}',
]


def run(lines, *flags):
  command = [sys.executable, "-m", "azr_jax.executor", "--workers=1", *flags]
  done = subprocess.run(
    command, input=lines, capture_output=True, timeout=60, check=True
  )
  return done.stdout


def test_every_line_has_a_result_in_order():
  lines = "\n".join(JOBS).encode() + b"\n\xff\xfe\n"
  results = [json.loads(line) for line in run(lines).splitlines()]
  found = [(r["id"], r["status"], r["outputs"]) for r in results]
  assert found == [
    ("a", "ok", ["1", "[2]"]),
    ("", "error", []),
    ("b", "error", []),
    ("c", "ok", ["1"]),
    ("d", "error", []),
    ("e", "error", []),
    ("", "error", []),
  ]
  assert set(results[0]) == {"id", "status", "outputs", "error", "seconds"}


def test_doctor_prints_the_layers():
  assert json.loads(run(b"", "--doctor"))["seccomp"] is True
