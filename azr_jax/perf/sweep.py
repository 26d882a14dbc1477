"""How the sampler's rate grows with slots and falls with length, as a plot."""

import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np

from azr_jax.models import transformer
from azr_jax.rollout.engine import make_programs
from azr_jax.rollout.settings import SamplerSettings


def decode_rate(
  model: transformer.Transformer,
  params: Any,
  mesh: jax.sharding.Mesh,
  rules: dict[str, str | None],
  settings: SamplerSettings,
  repeats: int,
) -> float:
  """Tokens per second of decoding alone, all slots busy.

  The cache is as long as the largest prompt bucket, and empty: what lies in it
  does not change the time.

  Args:
    model: the decoder.
    params: its parameters.
    mesh: where it runs.
    rules: logical axis to mesh axis.
    settings: slots, lengths and tokens per call.
    repeats: calls of the decode loop, of which the quickest counts.
  """
  programs = make_programs(model, mesh, rules, settings)
  params = programs.compute_params(params)
  slots = programs.sizes[0]
  state = programs.empty_slots()
  seconds = []
  for _ in range(repeats + 1):  # The first compiles.
    length = jnp.full(slots, settings.prompt_buckets[-1], jnp.int32)
    state = jax.block_until_ready(
      state.replace(
        cache=state.cache.replace(length=length),
        limit=state.written + settings.decode_chunk,
        done=jnp.zeros(slots, bool),
      )
    )
    start = time.perf_counter()
    state, written = programs.decode(
      params, state, np.zeros(0, np.int32), np.zeros(slots, bool), np.int32(0)
    )
    assert int(jax.device_get(written.count).sum()) == (
      slots * settings.decode_chunk
    )
    seconds.append(time.perf_counter() - start)
  return slots * settings.decode_chunk / min(seconds[1:])


def sweep(
  measure: Callable[[int, int], float],
  slots: Sequence[int],
  lengths: Sequence[int],
  at_slots: int,
  at_length: int,
) -> dict[str, dict[int, float]]:
  """Decoded tokens per second along both axes.

  Args:
    measure: (slots, cached tokens) -> tokens per second of decoding.
    slots: what to try at `at_length`.
    lengths: what to try at `at_slots`, in cached tokens.
    at_slots: slots while the length varies.
    at_length: cached tokens while the slots vary.
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
    for x, rate in found[axis].items():
      axes.annotate(
        f"{rate:.0f}", (x, rate), (0, 6), textcoords="offset points"
      )
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
