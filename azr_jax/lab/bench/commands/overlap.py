"""Measures how long a device stands idle because conversations await scripts.

The device is simulated (lab/bench/overlap.py); the scripts, of which some never
end, run in the executor of this machine or on several Ray nodes of it. By
default the sizes are those of `configs/code_interpreter.py:qwen2.5-7b`, and
both the device and the limit of a script are --speed_up times as fast. Keys:

  seconds         of sampling all conversations
  idle_fraction   fraction of them in which every slot awaited a script
  ideal_fraction  the same for an executor that loses no time
  lost_fraction   fraction of the seconds that the executor lost to that one
  p50_s, p99_s, worst_s  from a quick script's submission to its verdict
  timeouts        scripts that reached the limit
"""

import argparse
import contextlib
import statistics
import time
from collections.abc import Iterator
from typing import Any

from azr_jax.executor import Executor, scripts
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.lab.bench import device, overlap

MEMORY_MB = 512
WARM_S = 0.02  # A script takes less when nothing is being started.
MAX_WARM_UPS = 100


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the load, the device and the executor."""
  add = parser.add_argument
  add("--conversations", type=int, default=640, help="number of conversations")
  add("--scripts", type=int, default=8, help="scripts per conversation")
  add("--response_tokens", type=int, default=300, help="mean of a response")
  add("--endless", type=float, default=0.02, help="fraction of the scripts")
  add("--slots", type=int, default=256, help="conversations at a time")
  add("--token_s", type=float, default=0.025, help="to decode one of each slot")
  add("--decode_chunk", type=int, default=64, help="tokens of a device call")
  add("--timeout_s", type=float, default=60.0, help="limit of a script")
  add("--speed_up", type=float, default=10.0, help="divides all these times")
  add(
    "--seeds", type=int, nargs="+", default=[0], help="of lengths and scripts"
  )
  add("--nodes", type=int, default=0, help="Ray nodes to start here; 0: no Ray")
  add("--workers", type=int, default=16, help="pairs of zygotes of each node")


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Samples the conversations; returns the figures of each seed."""
  timeout_s = flags.timeout_s / flags.speed_up
  # Values that are out of range are refused here, before anything starts.
  ExecutorSettings(workers=flags.workers, timeout_s=timeout_s)
  metrics: dict[str, Any] = {"machine": device.machine()}
  zygotes = 2 * flags.workers * max(1, flags.nodes)
  with _executor(flags.nodes, flags.workers, timeout_s) as executor:
    _warm_up(executor, zygotes)
    for seed in flags.seeds:
      load = overlap.Load(
        flags.conversations,
        flags.scripts,
        flags.response_tokens,
        flags.endless,
        flags.slots,
        flags.token_s / flags.speed_up,
        flags.decode_chunk,
        seed,
      )
      metrics[f"seed_{seed}"] = _figures(load, executor, timeout_s)
  return metrics


def _warm_up(executor: Executor, zygotes: int) -> None:
  """Runs scripts until all zygotes have started, which takes seconds."""
  for turn in range(MAX_WARM_UPS):
    start = time.monotonic()
    executor.map(
      scripts.script_job(overlap.QUICK.format(f"{turn}, {number}"))
      for number in range(zygotes)
    )
    if time.monotonic() - start < WARM_S * zygotes:
      return
  raise RuntimeError(f"{zygotes} scripts still take longer than expected")


def _figures(
  load: overlap.Load, executor: Executor, timeout_s: float
) -> dict[str, float]:
  backend = overlap.RealScripts(executor)
  usage = overlap.simulate(load, backend)
  ideal = overlap.simulate(load, overlap.IdealScripts(timeout_s))
  percentiles = statistics.quantiles(backend.latencies_s, n=100)
  return {
    "seconds": usage.seconds,
    "idle_fraction": usage.idle_fraction,
    "ideal_fraction": ideal.idle_fraction,
    "lost_fraction": (usage.seconds - ideal.seconds) / usage.seconds,
    "p50_s": percentiles[49],
    "p99_s": percentiles[98],
    "worst_s": max(backend.latencies_s),
    "timeouts": backend.timeouts,
  }


@contextlib.contextmanager
def _executor(nodes: int, workers: int, timeout_s: float) -> Iterator[Executor]:
  """Yields an executor on this machine, or on Ray nodes started on it."""
  if not nodes:
    with Executor(workers, timeout_s, MEMORY_MB) as executor:
      yield executor
    return
  from ray import cluster_utils

  head = {"num_cpus": 0, "include_dashboard": False}
  cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
  try:
    for _ in range(nodes):
      cluster.add_node(num_cpus=workers)
    with Executor(
      workers, timeout_s, MEMORY_MB, backend="ray", address=str(cluster.address)
    ) as executor:
      yield executor
  finally:
    cluster.shutdown()
