"""How the sampler's rate grows with slots and falls with length, as a plot."""

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
  """Decoded tokens per second along both axes.

  Args:
    measure: (slots, prompt tokens) -> tokens per second of decoding.
    slots: what to try at `at_length`.
    lengths: what to try at `at_slots`, in prompt tokens.
    at_slots: slots while the length varies.
    at_length: prompt tokens while the slots vary.
  """
  return {
    "slots": {count: measure(count, at_length) for count in slots},
    "length": {length: measure(at_slots, length) for length in lengths},
  }


def plot(
  found: dict[str, dict[int, float]], title: str, path: pathlib.Path
) -> None:
  """Draws both curves beside each other, both axes logarithmic."""
  figure = matplotlib.figure.Figure(figsize=(9, 3.6), layout="constrained")
  figure.suptitle(title)
  names = {"slots": "slots", "length": "cached tokens per slot"}
  for place, (axis, label) in enumerate(names.items(), start=1):
    axes = figure.add_subplot(1, 2, place)
    axes.plot(list(found[axis]), list(found[axis].values()), marker="o")
    axes.set(
      xlabel=label,
      ylabel="decoded tokens/s",
      xscale="log",
      yscale="log",
    )
    axes.set_xticks(list(found[axis]), [str(x) for x in found[axis]])
    axes.minorticks_off()
    axes.grid(visible=True, alpha=0.3)
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=120)
