"""Compares GRPO with and without stages on questions, with and without code.

  python launch/code_comparison.py --workdir=DIR [--seeds=0,1,2] [--parallel=2]

Estimates the improvement potential of the questions, trains with and without
the stages made from it, and scores the start and every run on held-out
questions, once in words alone and once with the Python tool. Finished runs are
not run again. Prints a table of pass@1 in percent, by task; `+-` is the
standard error over seeds, or over questions for the start and for a single
seed.
"""

import functools
import pathlib
import statistics

import runs
from absl import flags

from azr_jax.cli import front
from azr_jax.cli.errors import UsageError
from azr_jax.configs import code_interpreter
from azr_jax.curricula import improvement_potential as potential

START = flags.DEFINE_string(
  "start", "embedded:code-tiny", "The warm-started model."
)
LAUNCHER = runs.Launcher()
flags.adopt_module_key_flags(runs)  # shows them in --help
CURRICULA = flags.DEFINE_list(
  "curricula", ["none", "potential"], f"Some of {potential.CURRICULA}."
)
LIMIT = flags.DEFINE_integer("limit", 100, "Held-out questions per task.")
# Name in the table -> the agent of `config.evaluate.agents`.
AGENTS = {"text": "text", "interpreter": "code_agent"}
NAME = "questions/pass@1"


def main(argv: list[str]) -> None:
  """Trains and scores what is missing, then prints the table."""
  del argv
  if unknown := {*CURRICULA.value} - {*potential.CURRICULA}:
    raise UsageError(f"{unknown}: expected curricula of {potential.CURRICULA}")
  LAUNCHER.open_folder(start=START.value, limit=LIMIT.value)
  folder = LAUNCHER.folder
  _estimate_potential(folder)
  LAUNCHER.run_jobs(
    [
      functools.partial(_score, folder / "start_scores", START.value, agent)
      for agent in AGENTS
    ]
    + [
      functools.partial(_train, folder, curriculum, seed)
      for seed in LAUNCHER.seeds
      for curriculum in CURRICULA.value
    ]
  )
  if not LAUNCHER.dry:
    print(_table(folder))


def _pass_rates(folder: pathlib.Path) -> pathlib.Path:
  return folder / "potential" / "pass_rates.jsonl"


def _estimate_potential(folder: pathlib.Path) -> None:
  """Estimates the questions' potential if an curriculum needs it."""
  if {*potential.OFFLINE} & {*CURRICULA.value} and not _pass_rates(
    folder
  ).exists():
    LAUNCHER.run(
      "azr_jax.potential",
      "--config=configs/potential.py:tiny",
      f"--model={START.value}",
      f"--workdir={_pass_rates(folder).parent}",
    )


def _train(
  folder: pathlib.Path, curriculum: str, seed: str, cores: runs.Cores
) -> None:
  run_folder = folder / f"{curriculum}_{seed}"
  pass_rates = (
    str(_pass_rates(folder)) if curriculum in potential.OFFLINE else ""
  )
  LAUNCHER.train(
    run_folder,
    "configs/code_interpreter.py:tiny",
    f"--config.model.source={START.value}",
    f"--config.code_interpreter.curriculum={curriculum}",
    f"--config.code_interpreter.pass_rates={pass_rates}",
    seed=seed,
    cores=cores,
  )
  for agent in AGENTS:
    _score(folder / f"{run_folder.name}_scores", str(run_folder), agent, cores)


def _score(
  score_folder: pathlib.Path, model: str, agent: str, cores: runs.Cores
) -> None:
  LAUNCHER.score(
    score_folder / agent,
    model,
    "questions",
    "--config=configs/evaluate.py:questions_tiny",
    f"--config.evaluate.agents=('{AGENTS[agent]}',)",
    f"--data={'+'.join(code_interpreter.TINY_QUESTIONS)}",
    f"--limit={LIMIT.value}",
    cores=cores,
  )


def _table(folder: pathlib.Path) -> str:
  """Returns a Markdown table with a row per model and agent."""
  start = runs.scores(folder / "start_scores" / "text")
  tasks = [
    name.removeprefix(f"{NAME}/")
    for name in start
    if name.startswith(f"{NAME}/gym/")
  ]
  header = ["all", *(task.removeprefix("gym/") for task in tasks)]
  lines = [
    "| model | answers by | " + " | ".join(header) + " |",
    "| --- | --- | " + "--- | " * len(header),
  ]
  for agent in AGENTS:
    results = [runs.scores(folder / "start_scores" / agent)]
    lines.append(_row("start", agent, results, tasks))
  for curriculum in CURRICULA.value:
    for agent in AGENTS:
      results = [
        runs.scores(folder / f"{curriculum}_{seed}_scores" / agent)
        for seed in LAUNCHER.seeds
      ]
      name = "GRPO" if curriculum == "none" else f"GRPO, `{curriculum}`"
      lines.append(_row(name, agent, results, tasks))
  return "\n".join(lines)


def _row(
  name: str, agent: str, results: list[runs.Scores], tasks: list[str]
) -> str:
  """Returns a row of percentages; the first has its standard error."""
  value, error = runs.mean_and_error(results, NAME)
  cells = [f"{100 * value:.1f} +- {100 * error:.1f}"] + [
    f"{100 * statistics.mean(s[f'{NAME}/{task}'] for s in results):.0f}"
    for task in tasks
  ]
  return f"| {name} | {agent} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
  front.run(__doc__, main, takes_arguments=True)
