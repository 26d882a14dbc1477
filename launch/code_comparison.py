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

from azr_jax.curricula import potential
from configs import code_interpreter

START = flags.DEFINE_string(
  "start", "embedded:code-tiny", "The warm-started model."
)
WORKDIR = flags.DEFINE_string("workdir", None, "All runs.", required=True)
ORDERS = flags.DEFINE_list(
  "orders", ["none", "potential"], f"Of {potential.ORDERS}."
)
SEEDS = flags.DEFINE_list("seeds", ["0", "1", "2"], "Seeds of each.")
LIMIT = flags.DEFINE_integer("limit", 100, "Held-out questions of each task.")
PARALLEL = flags.DEFINE_integer(
  "parallel", 1, "Runs at a time, each on its share of the cores."
)
DRY_RUN = flags.DEFINE_bool("dry_run", False, "Print the commands, run none.")
EXTRA = flags.DEFINE_list("extra", [], "More flags for training.")
# What a score is called, and the agent that is scored.
AGENTS = {"text": "text", "interpreter": "free"}
NAME = "questions/pass@1"
# Orders that want the questions measured before.
OFFLINE = {*potential.ORDERS} - {"none", *potential.ONLINE}


def main(argv: list[str]) -> None:
  """Runs what is missing, then prints the table."""
  del argv
  if unknown := {*ORDERS.value} - {*potential.ORDERS}:
    raise app.UsageError(f"{unknown}: expected orders of {potential.ORDERS}")
  folder = pathlib.Path(WORKDIR.value).expanduser()
  settings = {
    "start": START.value,
    "limit": LIMIT.value,
    "extra": EXTRA.value,
  }
  if not DRY_RUN.value:
    try:
      runs.claim(folder, settings)
    except ValueError as error:
      raise app.UsageError(str(error)) from None
  _measure(folder)
  jobs = [
    functools.partial(_score, folder / "start_scores", START.value, agent)
    for agent in AGENTS
  ] + [
    functools.partial(_train, folder, order, seed)
    for seed in SEEDS.value
    for order in ORDERS.value
  ]
  runs.in_parallel(jobs, PARALLEL.value)
  if not DRY_RUN.value:
    print(_table(folder))


def _measured(folder: pathlib.Path) -> pathlib.Path:
  return folder / "potential" / "measured.jsonl"


def _measure(folder: pathlib.Path) -> None:
  if OFFLINE & {*ORDERS.value} and not _measured(folder).exists():
    _run(
      "azr_jax.potential",
      "--config=configs/potential.py:tiny",
      f"--model={START.value}",
      f"--workdir={_measured(folder).parent}",
    )


def _train(
  folder: pathlib.Path, order: str, seed: str, cores: frozenset[int]
) -> None:
  run = folder / f"{order}_{seed}"
  if not runs.is_done(run):
    measured = str(_measured(folder)) if order in OFFLINE else ""
    _run(
      "azr_jax.train",
      "--config=configs/code_interpreter.py:tiny",
      f"--config.model.source={START.value}",
      f"--config.code_interpreter.order={order}",
      f"--config.code_interpreter.measured={measured}",
      f"--config.seed={seed}",
      *EXTRA.value,
      f"--workdir={run}",
      cores=cores,
    )
  for agent in AGENTS:
    _score(folder / f"{run.name}_scores", str(run), agent, cores)


def _score(
  scores: pathlib.Path, model: str, agent: str, cores: frozenset[int]
) -> None:
  if runs.scores(scores / agent):
    return
  _run(
    "azr_jax.evaluate",
    "--config=configs/evaluate.py:questions_tiny",
    f"--config.evaluate.agent={AGENTS[agent]}",
    f"--model={model}",
    "--benchmark=questions",
    f"--data={'+'.join(code_interpreter.TINY_QUESTIONS)}",
    f"--limit={LIMIT.value}",
    f"--workdir={scores / agent}",
    cores=cores,
  )


def _run(
  module: str, *arguments: str, cores: frozenset[int] = frozenset()
) -> None:
  runs.run(module, *arguments, dry=DRY_RUN.value, cores=cores)


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
        for seed in SEEDS.value
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
