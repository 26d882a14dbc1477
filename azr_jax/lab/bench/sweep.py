"""Measures and plots the decode rate against slots and cached tokens."""

import pathlib
from collections.abc import Callable, Sequence

import matplotlib.figure


def sweep(
  measure: Callable[[int, int], float],
  slots: Sequence[int],
  lengths: Sequence[int],
  at_slots: int,
  at_length: int,
) -> dict[str, dict[int, float]]:
  """Measures decoded tokens per second along both axes.

  Args:
    measure: (slots, cached tokens per slot) -> decoded tokens per second.
    slots: slot counts to measure at `at_length`.
    lengths: cached tokens per slot to measure at `at_slots`.
    at_slots: slots while the length varies.
    at_length: cached tokens per slot while the slots vary.

  Returns:
    The rates by slot count under "slots", and by length under "length".
  """
  return {
    "slots": {count: measure(count, at_length) for count in slots},
    "length": {length: measure(at_slots, length) for length in lengths},
  }


def plot(
  rates: dict[str, dict[int, float]], title: str, path: pathlib.Path
) -> None:
  """Draws both curves side by side, on logarithmic axes.

  Args:
    rates: rates from `sweep`.
    title: title of the figure.
    path: file to write; its folder is created if missing.
  """
  figure = matplotlib.figure.Figure(figsize=(9, 3.6), layout="constrained")
  figure.suptitle(title)
  names = {"slots": "slots", "length": "cached tokens per slot"}
  for column, (axis, label) in enumerate(names.items(), start=1):
    axes = figure.add_subplot(1, 2, column)
    axes.plot(list(rates[axis]), list(rates[axis].values()), marker="o")
    for x, rate in rates[axis].items():
      axes.annotate(
        f"{rate:.0f}", (x, rate), (0, 6), textcoords="offset points"
      )
    axes.set(
      xlabel=label,
      ylabel="decoded tokens/s",
      xscale="log",
      yscale="log",
    )
    axes.set_xticks(list(rates[axis]), [str(x) for x in rates[axis]])
    axes.minorticks_off()
    axes.grid(visible=True, alpha=0.3)
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=120)
