"""The cases of `benchmark gpu`: plan, resume, limits, table."""

import argparse
import importlib
import json
import subprocess
import sys

import pytest

from azr_jax.lab.bench import case_runs, case_table, gpu_plan
from azr_jax.lab.bench.gpu_plan import OURS, TORCH, Case

# Prints what a command would, from its words: KEY=JSON, or a number of seconds.
_FAKE = """
import json, sys, time
for word in sys.argv[1:]:
  if word == "fail":
    sys.exit("no memory")
  if word == "hang":
    time.sleep(60)
print("a line of a library")
print(json.dumps(dict(w.split("=") for w in sys.argv[1:]), indent=2))
"""
COMMAND = (sys.executable, "-c", _FAKE)


def run(cases, path, deadline_s=60.0):
  """Runs cases; returns the status lines and the rows."""
  said = []
  case_runs.run(cases, path, deadline_s, said.append, COMMAND)
  return said, case_runs.read(path)


def test_a_second_call_runs_what_has_no_result(tmp_path):
  path = tmp_path / "new" / "results.jsonl"
  first = Case("first", OURS, ("step=1",))
  failing = Case("second", OURS, ("fail",))
  said, rows = run([first, failing], path)
  assert [line.split(":")[0] for line in said] == [first.key, failing.key]
  assert rows[first.key]["step"] == "1"
  assert "no memory" in rows[failing.key]["error"]
  # A killed run leaves half a line.
  with path.open("a", encoding="utf-8") as file:
    file.write('{"case": "second, azr')
  mended = Case("second", OURS, ("step=2",))
  said, rows = run([first, mended], path)
  assert [line.split(":")[0] for line in said] == [mended.key]
  assert rows[mended.key]["step"] == "2" and "error" not in rows[mended.key]


def test_a_case_ends_at_its_limit_and_the_others_at_the_deadline(tmp_path):
  path = tmp_path / "results.jsonl"
  slow = Case("slow", OURS, ("hang",), limit_s=0.5)
  said, rows = run([slow, Case("next", OURS, ("a=b",))], path, deadline_s=0.2)
  assert "not started" in said[0] and "not started" in said[1] and not rows
  said, rows = run([slow], path)
  assert rows[slow.key]["error"] == "ended after 0 s"


@pytest.mark.parametrize("tiny", [True, False])
def test_every_case_is_a_valid_command_and_its_own(tiny):
  cases = gpu_plan.make(tiny)
  assert len({case.key for case in cases}) == len(cases)
  for case in cases:
    command, *words = case.words
    parser = argparse.ArgumentParser()
    module = importlib.import_module(f"azr_jax.lab.bench.commands.{command}")
    module.add_flags(parser)
    parser.parse_args(words)
    assert case.limit_s >= 240


def test_both_sides_do_the_same_work():
  sides = {}
  for case in gpu_plan.make():
    if case.seconds_key:
      sides.setdefault(case.name, {})[case.side] = case
  for name, found in sides.items():
    if TORCH in found:
      ours, theirs = found[OURS], found[TORCH]
      assert ours.least == theirs.least, name
      assert set(theirs.words[2:]) <= set(ours.words), name
  # 16,384 tokens of 1.5B weights, three times two operations each.
  assert sides["update 1.5B"][OURS].least == pytest.approx(1.56e14, rel=0.02)
  # 3.1 GB of weights in bfloat16 and 576 cached tokens of 64 slots.
  floor = sides["decode 1.5B, 64 slots"][OURS].least
  assert floor == pytest.approx(3.09e9 + 64 * 575.5 * 28672, rel=0.01)


def test_the_table_compares_both_sides_with_the_peak():
  rates = {
    "device": "some GPU",
    "source": "measured",
    "flops": 2e14,
    "bandwidth": 1e12,
  }
  cases = [
    Case("update A", OURS, (), "step_s", 1e14, "flops"),
    Case("update A", TORCH, (), "step_s", 1e14, "flops"),
    Case("decode B", OURS, (), "token_s", 1e9, "bandwidth"),
    Case("decode C", TORCH, (), "token_s", 1e9, "bandwidth"),
    Case("update D", OURS, (), "step_s", 1e14, "flops"),
  ]
  ours = {"step_s": 1.0, "peak_rates": rates, "compile_s": 20.4}
  rows = {
    "update A, azr_jax": ours | {"layers": "scan", "remat": "dots"},
    "update A, torch": {"step_s": 2.0, "torch": "2.0", "recomputes": True},
    "decode B, azr_jax": {"token_s": 0.002},
    "decode C, torch": {"error": "ended"},
  }
  text = case_table.show(cases, rows)
  assert "some GPU, measured: 200 TFLOP/s, 1 TB/s" in text
  lines = [line for line in text.splitlines() if line.startswith("|")]
  how = "layers scan, remat dots, torch recomputes"
  assert lines[2:] == [
    f"| update A | 1000 | 2000 | 2.00 | 50.0 | 25.0 | 20 | {how} |",
    "| decode B | 2 |  |  | 50.0 |  |  |  |",
  ]


@pytest.mark.slow
def test_tiny_cases_run_on_a_cpu(tmp_path):
  out = tmp_path / "gpu.jsonl"
  command = [sys.executable, "-m", "azr_jax.benchmark", "gpu", "--tiny"]
  command += [f"--out={out}", "--only", "peak", "kernels", "decode 7B, 64"]
  command += ["update 135M, azr", "update 135M, torch", "135M, remat full"]
  done = subprocess.run(
    command, capture_output=True, text=True, check=True, timeout=600
  )
  found = json.loads(done.stdout)
  assert (found["measured"], found["failed"], found["not_run"]) == (7, {}, 0)
  rows = case_runs.read(out)
  assert rows["update 135M, remat full, azr_jax"]["remat"] == "full"
  names = ("update 135M", "decode 7B, 64 slots", "training", "decoding")
  assert all(f"| {name}" in done.stderr for name in names)
