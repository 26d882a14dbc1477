"""Text, code, and GRPO with and without stages, on the same questions.

  python launch/code_comparison.py --workdir=DIR [--seeds=0,1,2] [--parallel=2]

Measures the potential of the questions, trains with and without the stages made
of it, and scores the start and every run on held-out questions, by words alone
and by the interpreter. What is there is not done again. Prints a table of the
share of right answers, by task; `+-` is the standard error over seeds, or over
questions where there is one seed or, as for the start, none.
"""

import functools
import pathlib
import statistics

import runs
from absl import app, flags

from azr_jax.curricula import improvement_potential as potential
from configs import code_interpreter

START = flags.DEFINE_string(
  "start", "embedded:code-tiny", "The warm-started model."
)
LAUNCHER = runs.Launcher()
ORDERS = flags.DEFINE_list(
  "orders", ["none", "potential"], f"Of {potential.ORDERS}."
)
LIMIT = flags.DEFINE_integer("limit", 100, "Held-out questions of each task.")
# What a score is called, and the agent that is scored.
AGENTS = {"text": "text", "interpreter": "free"}
NAME = "questions/pass@1"
# Orders that want the questions measured before.
OFFLINE = {*potential.ORDERS} - {
  "none",
  *potential.ONLINE,
}


def main(argv: list[str]) -> None:
  """Runs what is missing, then prints the table."""
  del argv
  if unknown := {*ORDERS.value} - {*potential.ORDERS}:
    raise app.UsageError(f"{unknown}: expected orders of {potential.ORDERS}")
  LAUNCHER.claim(start=START.value, limit=LIMIT.value)
  folder = LAUNCHER.folder
  _measure(folder)
  LAUNCHER.do(
    [
      functools.partial(_score, folder / "start_scores", START.value, agent)
      for agent in AGENTS
    ]
    + [
      functools.partial(_train, folder, order, seed)
      for seed in LAUNCHER.seeds
      for order in ORDERS.value
    ]
  )
  if not LAUNCHER.dry:
    print(_table(folder))


def _measured(folder: pathlib.Path) -> pathlib.Path:
  return folder / "potential" / "measured.jsonl"


def _measure(folder: pathlib.Path) -> None:
  if OFFLINE & {*ORDERS.value} and not _measured(folder).exists():
    LAUNCHER.run(
      "azr_jax.potential",
      "--config=configs/potential.py:tiny",
      f"--model={START.value}",
      f"--workdir={_measured(folder).parent}",
    )


def _train(
  folder: pathlib.Path, order: str, seed: str, cores: frozenset[int]
) -> None:
  run = folder / f"{order}_{seed}"
  measured = str(_measured(folder)) if order in OFFLINE else ""
  LAUNCHER.train(
    run,
    "configs/code_interpreter.py:tiny",
    f"--config.model.source={START.value}",
    f"--config.code_interpreter.order={order}",
    f"--config.code_interpreter.measured={measured}",
    seed=seed,
    cores=cores,
  )
  for agent in AGENTS:
    _score(folder / f"{run.name}_scores", str(run), agent, cores)


def _score(
  scores: pathlib.Path, model: str, agent: str, cores: frozenset[int]
) -> None:
  LAUNCHER.score(
    scores / agent,
    model,
    "questions",
    "--config=configs/evaluate.py:questions_tiny",
    f"--config.evaluate.agent={AGENTS[agent]}",
    f"--data={'+'.join(code_interpreter.TINY_QUESTIONS)}",
    f"--limit={LIMIT.value}",
    cores=cores,
  )


def _table(folder: pathlib.Path) -> str:
  """One row per model and agent, one column per task."""
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
    found = [runs.scores(folder / "start_scores" / agent)]
    lines.append(_row("start", agent, found, tasks))
  for order in ORDERS.value:
    for agent in AGENTS:
      found = [
        runs.scores(folder / f"{order}_{seed}_scores" / agent)
        for seed in LAUNCHER.seeds
      ]
      name = "GRPO" if order == "none" else f"GRPO, `{order}`"
      lines.append(_row(name, agent, found, tasks))
  return "\n".join(lines)


def _row(
  name: str, agent: str, found: list[dict[str, float]], tasks: list[str]
) -> str:
  """Percentages; the first with its standard error."""
  value, error = runs.mean_and_error(found, NAME)
  cells = [f"{100 * value:.1f} +- {100 * error:.1f}"] + [
    f"{100 * statistics.mean(s[f'{NAME}/{task}'] for s in found):.0f}"
    for task in tasks
  ]
  return f"| {name} | {agent} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
  app.run(main)
