"""The command that makes the table of AZR's ablations and switches."""

import ast
import functools
import json
import subprocess
import sys

import launching
import pytest
import training

from azr_jax.configs import azr
from azr_jax.trainer import settings as train_settings

NAME = "programs_heldout/pass@1"


def launch(workdir, *flags):
  return launching.launch("azr_ablations", workdir, *flags)


def write_scores(folder, value):
  folder.mkdir(parents=True)
  scores = {f"{NAME}/unbiased": value, f"{NAME}/unbiased_stderr": 0.25}
  scores |= {
    f"{NAME}/{kind}": value + 0.1 * index
    for index, kind in enumerate(("deduction", "abduction", "induction"))
  }
  (folder / "results.json").write_text(json.dumps({"scores": scores}))


def test_finished_runs_become_a_table(tmp_path):
  write_scores(tmp_path / "start_scores", 0.2)
  for seed, value in ((0, 0.4), (1, 0.6)):
    run = tmp_path / f"solver_only_{seed}"
    run.mkdir()
    (run / "metrics.jsonl").write_text(
      "".join(f'{{"step": {s}, "time/step": 30}}\n' for s in (1, 2))
    )
    (run / "config.json").write_text('{"train": {"steps": 2}}')
    write_scores(tmp_path / f"solver_only_{seed}_scores", value)
  done = launch(tmp_path, "--seeds=0,1", "--variants=solver_only")
  assert done.returncode == 0, done.stderr[-2000:]
  lines = done.stdout.splitlines()
  assert lines[0].startswith("| variant | deduction | abduction | induction")
  assert lines[2].endswith("| 20.0 | 30.0 | 40.0 | 20.0 +- 25.0 |  |")
  assert lines[3] == (
    "| `solver_only` | 50.0 | 60.0 | 70.0 | 50.0 +- 10.0 | 1.0 |"
  )


def test_unknown_variants_are_refused(tmp_path):
  refused = launch(tmp_path, "--variants=typo", "--dry_run")
  assert "expected variants of" in refused.stderr + refused.stdout


@pytest.fixture(name="changes", scope="module")
def read_changes():
  done = subprocess.run(
    [
      sys.executable,
      "-c",
      "import json, azr_ablations as a; print(json.dumps(a.CHANGES))",
    ],
    cwd=f"{training.ROOT}/launch",
    capture_output=True,
    text=True,
    check=True,
  )
  return json.loads(done.stdout)


def test_every_variant_is_a_valid_config_and_changes_something(changes):
  plain = azr.get_config("tiny").azr.to_dict()
  for name, settings in changes.items():
    config = azr.get_config("tiny")
    for setting in settings:
      path, _, text = setting.partition("=")
      *sections, key = path.split(".")
      section = functools.reduce(getattr, sections, config.azr)
      kind = type(section[key])
      section[key] = text if kind is str else kind(ast.literal_eval(text))
    train_settings.read_train(config)
    assert (config.azr.to_dict() != plain) == (name != "full")
