"""The command that makes the Code Interpreter's table."""

import json

import launching
import pytest

QUESTIONS = "questions/pass@1"


def launch(workdir, *flags):
  return launching.launch("code_comparison", workdir, "--limit=4", *flags)


def write_scores(folder, value):
  folder.mkdir(parents=True)
  scores = {
    f"{QUESTIONS}/unbiased": value,
    f"{QUESTIONS}/unbiased_stderr": 0.25,
    f"{QUESTIONS}/gym/gcd": value / 2,
  }
  (folder / "results.json").write_text(json.dumps({"scores": scores}))


@pytest.mark.slow
def test_finished_runs_become_a_table_and_are_not_run_again(tmp_path):
  (tmp_path / "potential").mkdir()
  (tmp_path / "potential" / "pass_rates.jsonl").write_text("")
  for agent, value in (("text", 0.2), ("interpreter", 0.4)):
    write_scores(tmp_path / "start_scores" / agent, value)
    for order, more in (("none", 0.1), ("potential", 0.2)):
      for seed in (0, 1):
        run = tmp_path / f"{order}_{seed}"
        run.mkdir(exist_ok=True)
        (run / "metrics.jsonl").write_text('{"step": 2}\n')
        (run / "config.json").write_text('{"train": {"steps": 2}}')
        folder = tmp_path / f"{order}_{seed}_scores" / agent
        write_scores(folder, value + more + 0.2 * seed)
  done = launch(tmp_path, "--seeds=0,1")
  assert done.returncode == 0, done.stderr[-2000:]
  lines = done.stdout.splitlines()
  assert lines[0] == "| model | answers by | all | gcd |"
  assert lines[2] == "| start | text | 20.0 +- 25.0 | 10 |"
  assert lines[5] == "| GRPO | interpreter | 60.0 +- 10.0 | 30 |"
  assert lines[6] == "| GRPO, `potential` | text | 50.0 +- 10.0 | 25 |"
  refused = launch(tmp_path, "--seeds=0,1", "--start=elsewhere")
  assert "another --workdir" in refused.stderr + refused.stdout


@pytest.mark.slow
def test_a_dry_run_names_every_command_and_runs_none(tmp_path):
  curricula = "--curricula=none,potential,online_merge"
  done = launch(tmp_path / "new", "--dry_run", "--seeds=0,1", curricula)
  commands = done.stdout.splitlines()
  assert sum("azr_jax.potential" in c for c in commands) == 1
  assert sum("azr_jax.train" in c for c in commands) == 6
  assert sum("azr_jax.evaluate" in c for c in commands) == 2 + 2 * 6
  online = [c for c in commands if "curriculum=online_merge" in c]
  assert len(online) == 2  # These need no pass rates from before.
  assert all("--config.code_interpreter.pass_rates= " in c for c in online)
  assert not (tmp_path / "new").exists()
  refused = launch(tmp_path, "--dry_run", "--curricula=typo")
  assert "expected curricula of" in refused.stderr + refused.stdout
