"""Tests of `python -m azr_jax.executor`."""

import json
import signal
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
    assert set(result) == {
      *("id", "status", "outputs", "error", "seconds", "cpu_s")
    }
    if number in REASONS:
      assert (result["status"], result["outputs"]) == ("error", [])
      assert result["error"].startswith(f"line {number} is no job: ")
      assert REASONS[number] in result["error"]
  verdicts = [(r["id"], r["status"], r["outputs"]) for r in results]
  assert verdicts[0] == ("a", "ok", ["1", "[2]"])
  assert verdicts[3] == ("c", "ok", ["1"])


@pytest.mark.parametrize(
  "flag, wanted",
  [
    ("--workers=0", "workers=0: expected an integer of at least 1"),
    ("--timeout_s=-1", "timeout_s=-1.0: expected a number of at least 0.01"),
    ("--timeout_s=nan", "timeout_s=nan: expected a number"),
    ("--timeout_s=inf", "timeout_s=inf: expected a number"),
    ("--memory_mb=1", "memory_mb=1: expected an integer of at least 64"),
  ],
)
def test_a_bad_flag_is_named(flag, wanted):
  command = [sys.executable, "-m", "azr_jax.executor", flag]
  done = subprocess.run(command, input="", capture_output=True, text=True)
  assert done.returncode == 2 and wanted in done.stderr


def test_a_rejected_job_keeps_its_id():
  [result] = [json.loads(line) for line in run(JOBS[4].encode()).splitlines()]
  assert (result["id"], result["status"]) == ("d", "error")


def test_a_result_does_not_wait_for_the_next_line():
  command = [sys.executable, "-m", "azr_jax.executor", "--workers=1"]
  pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
  with subprocess.Popen(command, text=True, **pipes) as process:
    assert process.stdin and process.stdout
    process.stdin.write(JOBS[0] + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["outputs"] == ["1", "[2]"]
    process.stdin.close()
    assert process.wait(30) == 0


@pytest.mark.parametrize("module", ["executor", "grading"])
def test_a_reader_that_has_gone_is_no_traceback(module):
  lines = (JOBS[0] + "\n") * 5000
  command = f"{sys.executable} -m azr_jax.{module} --workers=1 | head -1"
  done = subprocess.run(
    command, input=lines, capture_output=True, shell=True, text=True
  )
  assert done.stdout.count("\n") == 1
  assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["executor", "grading"])
def test_control_c_is_no_crash(module):
  command = [sys.executable, "-m", f"azr_jax.{module}", "--workers=1"]
  pipe = subprocess.PIPE
  with subprocess.Popen(
    command, text=True, stdin=pipe, stdout=pipe, stderr=pipe
  ) as process:
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(JOBS[0] + "\n")
    process.stdin.flush()
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert "Traceback" not in process.stderr.read()


def test_doctor_prints_the_layers():
  assert json.loads(run(b"", "--doctor"))["seccomp"] is True
