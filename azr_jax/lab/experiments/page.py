"""Writes an experiment's results: results.json, results.md, figure.png."""

import dataclasses
import datetime
import hashlib
import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.lab.experiments import (
  analysis,
  archive,
  dates,
  figure,
  folders,
  plan_file,
  reading,
  styled,
)
from azr_jax.lab.experiments.analysis import Finding
from azr_jax.lab.experiments.folders import Workdir
from azr_jax.lab.experiments.plan import (
  PAIRED_SEEDS,
  TWO_SAMPLES,
  OutcomeSettings,
  Plan,
)
from azr_jax.run import storage

RESULTS, PAGE, FIGURE = "results.json", "results.md", "figure.png"
_ANALYSES = {
  TWO_SAMPLES: (
    "Analysis: the seeds of two arms are independent samples; both arms answer "
    "the same items."
  ),
  PAIRED_SEEDS: "Analysis: two arms are compared in pairs, by seed and item.",
}


def write(source: pathlib.Path, out: pathlib.Path, workdir: Workdir) -> str:
  """Analyses the runs so far and writes the three files.

  Args:
    source: the folder of the plan.
    out: the folder to write into.
    workdir: the working directory with the runs.

  Returns:
    The text of results.md.

  Raises:
    ValueError: a run was trained with other values than the plan's.
  """
  analysis.check_runs(workdir)
  cells, findings = analysis.cells(workdir), analysis.findings(workdir)
  commits = archive.commits(workdir, source)
  planned, began = dates.of_plan(source), dates.of_commits(source, commits)
  results = {
    "plan_sha256": plan_hash(source),
    "analysis": workdir.plan.about.analysis,
    "registered": planned <= began if planned and began else None,
    "plan_committed": planned and planned.isoformat(),
    "first_run_commit": began and began.isoformat(),
    "commits": commits,
    "runs": _runs(workdir),
    "core_hours": sum(workdir.spent().values()) / 3600,
    "outcomes": [dataclasses.asdict(one) for one in cells],
    "comparisons": [_flat(one) for one in findings],
    "styles": [dataclasses.asdict(one) for one in styled.gains(workdir)],
  }
  # The page is made from the file's content, so that the two agree.
  results = json.loads(json.dumps(results))
  storage.write_atomically(out / RESULTS, json.dumps(results, indent=1) + "\n")
  text = page(workdir.plan, results)
  storage.write_atomically(out / PAGE, text)
  figure.draw(workdir, results, out / FIGURE)
  return text


def plan_hash(folder: pathlib.Path) -> str:
  """Returns the SHA-256 of the plan file."""
  return hashlib.sha256((folder / plan_file.FILE).read_bytes()).hexdigest()


def _flat(finding: Finding) -> dict[str, Any]:
  values = dataclasses.asdict(finding)
  return values.pop("comparison") | values


def _runs(workdir: Workdir) -> dict[str, dict[str, float]]:
  """Returns finished steps and core minutes of each run that has started."""
  found = {}
  for arm, seed in workdir.plan.runs():
    rows = folders.read_rows(workdir.run(arm, seed))
    steps = [row["time/step"] for row in rows if "time/step" in row]
    if steps:
      # The median ignores steps during which the machine was suspended.
      minutes = len(steps) * statistics.median(steps) / 60
      found[f"{arm}_{seed}"] = {
        "steps": folders.steps_done(workdir.run(arm, seed))[0],
        "core_minutes": minutes,
      }
  return found


def page(plan: Plan, results: Mapping[str, Any]) -> str:
  """Returns question, tables and conclusions, as Markdown."""
  about = plan.about
  runs = results["runs"]
  hours = sum(run["core_minutes"] for run in runs.values()) / 60
  text = (
    f"{len(runs)} of {len(plan.runs())} runs have begun, with {hours:.1f} "
    "core-hours of steps"
  )
  if results["commits"]:
    text += f" at commit {', '.join(results['commits'])}"
  parts = [
    "A rehearsal: it says nothing of the claim." * plan.is_rehearsal,
    f"# {about.question}",
    f"Claim: {about.claim} ({about.source})",
    f"Refuted if: {about.refuted_if}",
    f"Dropped: {about.dropped}" if about.dropped else "",
    *(f"Amended, {one.when}: {one.why}" for one in plan.amendments),
    f"{text}. {_dates(results)}",
    _ANALYSES[results["analysis"]],
    _arms(plan, results),
    _comparisons(plan, results),
    styled.table(results["styles"]),
    f"![curves and differences]({FIGURE})",
    *(reading.sentence(plan, one) for one in results["comparisons"]),
  ]
  return "\n\n".join(filter(None, parts)) + "\n"


def _dates(results: Mapping[str, Any]) -> str:
  """Returns whether the plan is older than the runs, with the dates."""
  if results["registered"] is None:
    return "Git does not tell whether the plan is older than the runs."
  planned, began = (
    datetime.datetime.fromisoformat(results[key])
    .astimezone(datetime.UTC)
    .strftime("%Y-%m-%d %H:%M UTC")
    for key in ("plan_committed", "first_run_commit")
  )
  text = f"The plan was committed on {planned}"
  if results["registered"]:
    return f"{text}, no later than the oldest commit that ran ({began})."
  return (
    f"{text}, after the oldest commit that ran ({began}), so some runs may be "
    "older than the plan."
  )


def _arms(plan: Plan, results: Mapping[str, Any]) -> str:
  """Returns the table of outcomes: a row per arm, a column per outcome."""
  found = {(one["arm"], one["outcome"]): one for one in results["outcomes"]}
  arms = [
    arm
    for arm in ("start", *plan.arms)
    if any((arm, name) in found for name in plan.outcomes)
  ]
  titles = [outcome.title for outcome in plan.outcomes.values()]
  lines = [
    "| arm | seeds | " + " | ".join(titles) + " | core-minutes a run |",
    "|" + " --- |" * (len(titles) + 3),
  ]
  for arm in arms:
    seeds = {s for a, _ in found if a == arm for s in found[a, _]["seeds"]}
    cells = [
      _cell(outcome, found.get((arm, name)), len(seeds))
      for name, outcome in plan.outcomes.items()
    ]
    minutes = [
      run["core_minutes"]
      for name, run in results["runs"].items()
      if name.rpartition("_")[0] == arm
    ]
    time = f"{statistics.mean(minutes):.1f}" if minutes else ""
    count = "" if arm == "start" else str(len(seeds))
    lines.append(f"| `{arm}` | {count} | {' | '.join(cells)} | {time} |")
  return "\n".join(lines) if arms else ""


def _cell(
  outcome: OutcomeSettings, cell: Mapping[str, Any] | None, num_seeds: int
) -> str:
  """Returns the mean with its standard error, over seeds if there are several.

  Args:
    outcome: the plan's outcome.
    cell: the outcome in results.json, or None.
    num_seeds: number of the arm's seeds; the cell may have fewer.
  """
  if cell is None:
    return ""
  text = reading.shown(outcome, cell["mean"])
  if cell["seed_stderr"] is not None:
    text += f" +- {reading.shown(outcome, cell['seed_stderr'])}"
  elif cell["item_stderr"] is not None:
    text += f" +- {reading.shown(outcome, cell['item_stderr'])} (items)"
  if len(cell["seeds"]) < num_seeds:
    text += f" ({len(cell['seeds'])} of {num_seeds} seeds)"
  return text


def _comparisons(plan: Plan, results: Mapping[str, Any]) -> str:
  if not results["comparisons"]:
    return ""
  level = f"{100 * plan.about.confidence:g} %"
  power = f"{100 * plan.about.power:g} %"
  lines = [
    f"| claim | n | difference | {level} interval | bootstrap | p | p (Holm) "
    f"| planned: seen with {power} power | seen with {power} power | verdict |",
    "|" + " --- |" * 10,
  ]
  lines += [_comparison(plan, one) for one in results["comparisons"]]
  return "\n".join(lines)


def _comparison(plan: Plan, one: Mapping[str, Any]) -> str:
  outcome = plan.outcomes[one["outcome"]]
  text = reading.claim(plan, one)
  if not one["primary"]:
    text += " (secondary)"
  planned = one["planned"]
  seen = "" if planned is None else reading.shown(outcome, planned)
  if one["difference"] is None:
    return f"| {text} |" + " |" * 6 + f" {seen} | | {one['verdict']} |"

  def interval(ends: Sequence[float] | None) -> str:
    if ends is None:
      return ""
    return " to ".join(reading.shown(outcome, end, signed=True) for end in ends)

  smallest = one["smallest"]
  samples = (one["seeds"], one["base_seeds"])
  seeds = " + ".join(str(len(sample)) for sample in samples if sample)
  cells = (
    text,
    f"{seeds} x {one['items']}",
    reading.shown(outcome, one["difference"], signed=True),
    interval(one["interval"]),
    interval(one["bootstrap"]),
    f"{one['p']:.3f}",
    "" if one["p_holm"] is None else f"{one['p_holm']:.3f}",
    seen,
    "" if smallest is None else reading.shown(outcome, smallest),
    reading.verdict(plan, one),
  )
  return f"| {' | '.join(cells)} |"
