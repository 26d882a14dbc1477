"""Bounds the compilers' estimates for the paper's programs.

Lower `BOUNDS` when a program improves, so that regressions are noticed. The
figures come from `compile_check --json`; docs/results/tpu.md has the current
ones. Each configuration is compiled once, which takes minutes.
"""

import functools
import importlib.util
import json
import os
import subprocess
import sys

import pytest
import training

SEVEN_B = "configs/azr.py:qwen2.5-7b"
# A model with several key heads on each device.
FOURTEEN_B = "configs/azr.py:qwen2.5-coder-14b"
# A small model, with few slots and a program of each layer.
SMALL = (
  "configs/azr.py:smollm2-135m_gpu --config.model.preset=qwen2.5-1.5b "
  "--config.rollout.slots=64 --config.rollout.layers=unrolled "
  "--config.rollout.projection=kernel"
)
V5P, LARGER_V5P, H100, H200 = "v5p:4x4x2", "v5p:4x4x4", "h100:1", "h200:8"
# (config and other flags, topology) -> program -> figure -> maximum. Cycles are
# in millions: per micro-batch with an optimizer step, per decoded token at
# three chunks of the cache, or per decode call without its tokens.
BOUNDS = {
  (SEVEN_B, V5P): {
    "update": {
      "cycles": 3_600,
      "permutes": 0,
      "gathers_exposed_fraction": 0.15,
      "large": 0,
      "scratch_gib": 50.5,  # `model.remat=auto` uses the memory there is.
    },
    "score": {"cycles": 1_100, "permutes": 0, "large": 0, "scratch_gib": 2.6},
    "prefill": {"cycles": 69, "large": 0},
    "decode": {
      "token_cycles": 6.2,  # With 1,024 slots; 5.7 with 256.
      "call_cycles": 25,  # Each slot's pages are written one by one.
      "large": 0,
      "scratch_gib": 0.55,
    },
  },
  (FOURTEEN_B, LARGER_V5P): {
    "prefill": {"cycles": 160, "large": 0, "scratch_gib": 12.6},
    "decode": {"token_cycles": 10.5, "large": 0, "scratch_gib": 1.3},
  },
  (SEVEN_B, H200): {
    "decode": {"token_launches": 430, "large": 0, "scratch_gib": 1.4},
    "update": {"permutes": 0, "large": 0, "scratch_gib": 24.5},
  },
  (SMALL, H100): {"decode": {"token_launches": 280}},
}
COMPILERS = {
  **dict.fromkeys((V5P, LARGER_V5P), "libtpu"),
  **dict.fromkeys((H100, H200), "jax_cuda13_plugin"),
}


@functools.cache
def programs(config, topology):
  """Returns the reports of the programs in `BOUNDS`, by name."""
  done = subprocess.run(
    [sys.executable, "-m", "azr_jax.compile_check", "--json"]
    + [f"--topology={topology}", *f"--config={config}".split()]
    + ["--programs=" + ",".join(BOUNDS[config, topology])],
    cwd=training.ROOT,
    env=os.environ | {"XLA_FLAGS": ""},  # Some compilers refuse the others.
    capture_output=True,
    text=True,
    timeout=3600,
    check=False,
  )
  assert done.stdout.startswith("{"), done.stderr[-2000:]
  return json.loads(done.stdout)["programs"]


def gathers_exposed_fraction(program):
  """Returns the fraction of gathered bytes that synchronous gathers move."""
  gathers = [
    (one["count"] * one["bytes"], one["asynchronous"])
    for one in program["collectives"]
    if one["kind"] == "all-gather"
  ]
  in_line = sum(size for size, asynchronous in gathers if not asynchronous)
  return in_line / sum(size for size, _ in gathers)


FIGURES = {
  "cycles": lambda program: program["cycles"] / 1e6,
  "token_cycles": lambda program: program["loops"]["token"]["cycles"] / 1e6,
  "call_cycles": lambda program: program["once"]["cycles"] / 1e6,
  "token_launches": lambda program: program["loops"]["token"]["launches"],
  "permutes": lambda program: sum(
    one["count"]
    for one in program["collectives"]
    if one["kind"] == "collective-permute"
  ),
  "gathers_exposed_fraction": gathers_exposed_fraction,
  "large": lambda program: len(program["large_results"]),
  "scratch_gib": lambda program: program["scratch_bytes"] / 2**30,
}


@pytest.mark.slow
@pytest.mark.parametrize(
  "config, topology, program, figure",
  [
    (config, topology, program, figure)
    for (config, topology), bounds in BOUNDS.items()
    for program, figures in bounds.items()
    for figure in figures
  ],
)
def test_programs_stay_within_their_bounds(config, topology, program, figure):
  compiler = COMPILERS[topology]
  if importlib.util.find_spec(compiler) is None:
    pytest.skip(f"needs the compiler of {compiler}")
  found = programs(config, topology)[program]
  assert not found["error"] and found["fits"]
  bound = BOUNDS[config, topology][program][figure]
  assert FIGURES[figure](found) <= bound
