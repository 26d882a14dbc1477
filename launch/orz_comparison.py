"""PPO, PPO with lambda 0.95 and GRPO on the same problems, as one figure.

  python launch/orz_comparison.py --workdir=DIR [--seeds=0,1,2] [--out=FIGURE]

Every run is a folder `DIR/NAME_SEED`; what is there is not done again. Prints
a table of the ends of the runs and draws reward, length, truncation and repeat
score over steps (ORZ, figures 3 and 7).
"""

import functools
import pathlib
import statistics

import runs
from absl import app, flags

LAUNCHER = runs.Launcher()
OUT = flags.DEFINE_string("out", "orz.png", "The figure to write.")
NAMES = {
  "PPO": [],
  "PPO, lambda 0.95": ["--config.critic.gae_lambda=0.95"],
  "GRPO": ["--config.learner.estimator=grpo"],
}
CURVES = {
  "reward": "correct/orz/solve/mean",
  "tokens of an answer": "tokens/orz/solve/mean",
  "truncated share": "health/orz/truncated_share",
  "repeat score": "health/orz/repeat_score",
}
# Steps at either end that a figure of the table is the mean of.
ENDS = 5


def main(argv: list[str]) -> None:
  """Runs what is missing, prints the table, draws the figure."""
  del argv
  LAUNCHER.claim()
  folder = LAUNCHER.folder
  LAUNCHER.do(
    [
      functools.partial(_train, folder, name, seed)
      for seed in LAUNCHER.seeds
      for name in NAMES
    ]
  )
  if LAUNCHER.dry:
    return
  found = {
    name: [runs.metrics(_place(folder, name, seed)) for seed in LAUNCHER.seeds]
    for name in NAMES
  }
  print(table(found))
  draw(found, OUT.value)


def _place(folder: pathlib.Path, name: str, seed: str) -> pathlib.Path:
  return folder / f"{name.replace(', ', '_').replace(' ', '_')}_{seed}"


def _train(
  folder: pathlib.Path, name: str, seed: str, cores: frozenset[int]
) -> None:
  LAUNCHER.train(
    _place(folder, name, seed),
    "configs/orz.py:tiny",
    *NAMES[name],
    seed=seed,
    cores=cores,
  )


def table(found: dict[str, list[list[dict[str, float]]]]) -> str:
  """Means of the first and the last steps, +- standard error over seeds.

  `explained` is the critic's explained variance.
  """
  columns = [
    ("reward, first", CURVES["reward"], slice(0, ENDS)),
    ("reward, last", CURVES["reward"], slice(-ENDS, None)),
    ("value loss, first", "critic/value_loss", slice(0, ENDS)),
    ("value loss, last", "critic/value_loss", slice(-ENDS, None)),
    ("explained, last", "critic/explained_variance", slice(-ENDS, None)),
    ("minutes", "time/step", slice(None)),
  ]
  lines = [
    "| run | " + " | ".join(name for name, _, _ in columns) + " |",
    "| --- |" + " --- |" * len(columns),
  ]
  for name, own in found.items():
    cells = []
    for title, key, part in columns:
      if key not in own[0][0]:
        cells.append("")
        continue
      values = [[step[key] for step in run[part]] for run in own]
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


def draw(found: dict[str, list[list[dict[str, float]]]], out: str) -> None:
  """Draws a panel per curve: means over seeds, and their range."""
  import matplotlib

  matplotlib.use("Agg")
  from matplotlib import pyplot

  figure, panels = pyplot.subplots(1, len(CURVES), figsize=(14, 3.2))
  for panel, (title, key) in zip(panels, CURVES.items(), strict=True):
    for name, own in found.items():
      steps = [step["step"] for step in own[0]]
      by_step = list(zip(*[[s[key] for s in run] for run in own], strict=True))
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
  app.run(main)
