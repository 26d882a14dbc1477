import json
import subprocess
import sys

import pytest

JOBS = [
  '{"id": "a", "code": "def f(x): return x", "inputs": ["1", "[2]"]}',
  "no json",
  '{"id": "b", "code": "def f(x): return x", "inputs": "12"}',
  '{"id": "c", "code": "def g(): return 1", "inputs": [""], "entry": "g"}',
  '{"id": "d", "code": "def f(): return 1", "inputs": [""], "runs": 2.0}',
  '{"id": "e", "code": "x", "inputs": [""], "forbidden": "os"}',
  '{"id": "f", "entyr": "g"}',
]


REASONS = {
  2: "Expecting value",
  3: "inputs is '12'; expected a list",
  5: "runs is 2.0; expected 1 or more",
  6: "forbidden is 'os'; expected a list",
  7: "missing ['code', 'inputs'], unknown ['entyr']",
  8: "Expecting value",
}


def run(lines, *flags):
  command = [sys.executable, "-m", "azr_jax.executor", "--workers=1", *flags]
  done = subprocess.run(
    command, input=lines, capture_output=True, timeout=60, check=True
  )
  return done.stdout


def test_every_line_has_a_result_in_order():
  lines = "\n".join(JOBS).encode() + b"\n\xff\xfe\n"
  results = [json.loads(line) for line in run(lines).splitlines()]
  assert len(results) == 8
  for number, result in enumerate(results, start=1):
    assert set(result) == {"id", "status", "outputs", "error", "seconds"}
    if number in REASONS:
      assert (result["status"], result["outputs"]) == ("error", [])
      assert result["error"].startswith(f"line {number} is no job: ")
      assert REASONS[number] in result["error"]
  found = [(r["id"], r["status"], r["outputs"]) for r in results]
  assert found[0] == ("a", "ok", ["1", "[2]"])
  assert found[3] == ("c", "ok", ["1"])


@pytest.mark.parametrize(
  "flag, wanted",
  [
    ("--workers=0", "workers is 0; expected at least 1"),
    ("--timeout_s=-1", "timeout_s is -1.0; expected more than 0"),
    ("--timeout_s=nan", "expected more than 0"),
    ("--memory_mb=1", "memory_mb is 1; expected at least 64"),
  ],
)
def test_a_bad_flag_is_named(flag, wanted):
  command = [sys.executable, "-m", "azr_jax.executor", flag]
  done = subprocess.run(command, input="", capture_output=True, text=True)
  assert done.returncode == 2 and wanted in done.stderr


def test_doctor_prints_the_layers():
  assert json.loads(run(b"", "--doctor"))["seccomp"] is True
