"""Compares PPO, PPO with lambda 0.95 and GRPO on the same problems.

  python launch/orz_comparison.py --workdir=DIR [--seeds=0,1,2] [--out=FIGURE]

A run is the folder `DIR/NAME_SEED`; finished runs are not run again. Prints a
table of each run's first and last steps and draws reward, length, truncation
and repeat score over steps, as figures 3 and 7 of ORZ (arXiv 2503.24290).
"""

import functools
import pathlib
import statistics

import runs
from absl import flags

from azr_jax.cli import front

LAUNCHER = runs.Launcher()
flags.adopt_module_key_flags(runs)  # shows them in --help
OUT = flags.DEFINE_string("out", "orz.png", "The figure to write.")
# Name -> flags that differ from configs/orz.py:tiny.
VARIANTS: dict[str, list[str]] = {
  "PPO": [],
  "PPO, lambda 0.95": ["--config.critic.gae_lambda=0.95"],
  "GRPO": ["--config.learner.estimator=grpo"],
}
# Title of a panel -> metric.
CURVES = {
  "reward": "correct/orz/solve/mean",
  "tokens per response": "tokens/orz/solve/mean",
  "fraction truncated": "health/orz/truncated_fraction",
  "repeat score": "health/orz/repeat_score",
}
END_STEPS = 5  # the table has means over so many first and last steps
# For each variant and seed, the metrics of each step.
Runs = dict[str, list[list[dict[str, float]]]]


def main(argv: list[str]) -> None:
  """Trains what is missing, prints the table, and draws the figure."""
  del argv
  LAUNCHER.open_folder()
  folder = LAUNCHER.folder
  LAUNCHER.run_jobs(
    [
      functools.partial(_train, folder, name, seed)
      for seed in LAUNCHER.seeds
      for name in VARIANTS
    ]
  )
  if LAUNCHER.dry:
    return
  metrics = {
    name: [
      runs.metrics(_run_folder(folder, name, seed)) for seed in LAUNCHER.seeds
    ]
    for name in VARIANTS
  }
  print(table(metrics))
  draw(metrics, OUT.value)


def _run_folder(folder: pathlib.Path, name: str, seed: str) -> pathlib.Path:
  return folder / f"{name.replace(', ', '_').replace(' ', '_')}_{seed}"


def _train(
  folder: pathlib.Path, name: str, seed: str, cores: runs.Cores
) -> None:
  LAUNCHER.train(
    _run_folder(folder, name, seed),
    "configs/orz.py:tiny",
    *VARIANTS[name],
    seed=seed,
    cores=cores,
  )


def table(metrics: Runs) -> str:
  """Returns a Markdown table of means over the first and the last steps.

  `+-` is the standard error over seeds; `explained` is the critic's explained
  variance.
  """
  columns = [
    ("reward, first", CURVES["reward"], slice(0, END_STEPS)),
    ("reward, last", CURVES["reward"], slice(-END_STEPS, None)),
    ("value loss, first", "critic/value_loss", slice(0, END_STEPS)),
    ("value loss, last", "critic/value_loss", slice(-END_STEPS, None)),
    ("explained, last", "critic/explained_variance", slice(-END_STEPS, None)),
    ("minutes", "time/step", slice(None)),
  ]
  lines = [
    "| run | " + " | ".join(name for name, _, _ in columns) + " |",
    "| --- |" + " --- |" * len(columns),
  ]
  for name, seeds in metrics.items():
    cells = []
    for title, key, steps in columns:
      if key not in seeds[0][0]:
        cells.append("")
        continue
      values = [[step[key] for step in run[steps]] for run in seeds]
      if title == "minutes":
        cells.append(f"{statistics.mean(map(sum, values)) / 60:.1f}")
        continue
      means = [statistics.mean(run) for run in values]
      error = 0.0
      if len(means) > 1:
        error = statistics.stdev(means) / len(means) ** 0.5
      cells.append(f"{statistics.mean(means):.3f} +- {error:.3f}")
    lines.append(f"| {name} | " + " | ".join(cells) + " |")
  return "\n".join(lines)


def draw(metrics: Runs, out: str) -> None:
  """Draws a panel per curve with the mean and the range over seeds."""
  # Imported here, because matplotlib is an optional dependency.
  import matplotlib

  matplotlib.use("Agg")
  from matplotlib import pyplot

  figure, panels = pyplot.subplots(1, len(CURVES), figsize=(14, 3.2))
  for panel, (title, key) in zip(panels, CURVES.items(), strict=True):
    for name, seeds in metrics.items():
      steps = [step["step"] for step in seeds[0]]
      values = [[step[key] for step in run] for run in seeds]
      by_step = list(zip(*values, strict=True))
      panel.plot(steps, [statistics.mean(v) for v in by_step], label=name)
      panel.fill_between(
        steps, list(map(min, by_step)), list(map(max, by_step)), alpha=0.2
      )
    panel.set_title(title)
    panel.set_xlabel("step")
    panel.set_ylim(bottom=0)
  panels[0].legend()
  figure.tight_layout()
  figure.savefig(out, dpi=110)


if __name__ == "__main__":
  front.run(__doc__, main, takes_arguments=True)
