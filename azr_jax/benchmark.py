"""Throughput, as JSON: what this machine does, and ratios that travel.

python -m azr_jax.benchmark executor [--workers 1 2] [--timeout_s 2.0]
  [--programs FILE.jsonl]
python -m azr_jax.benchmark sampler|update|step [--peer=transformers]
  [--model=random:smollm2-135m] [--dtype=float32] ...; see `sampler --help`
python -m azr_jax.benchmark sweep --out=PLOT.png
python -m azr_jax.benchmark conversations [--sleep_s 0.5] [--slots 64] ...

With a peer, both sides do the same work on the same weights, in turn, and
`of_peer` is the median of the ratios of their rates: above 1, ours is faster.

sampler and update
  tokens_per_s  sampled tokens that were asked for, prompts' time included;
                or trained tokens, padding not counted
  ..._roofline_share  of the time at least needed at the device's bandwidth
                (decoding) or matrix rate (update), nothing done twice
  program_gib   what the compiled update holds at once
  peak_..._gib  of this process, or of the device

conversations: replies with scripts between them, which end at once or sleep
  of_instant     seconds with sleeping scripts over those with instant ones
  slots_writing, slots_waiting  shares of the slots, over the device's calls
  device_idle_s  seconds in which all slots waited; slept_s: all scripts' sleep

executor: the programs are those of `programs_heldout`, or of a file whose lines
have `code`, `input` and `output`, as CRUXEval's do.

What the keys hold:
  machine      cores, Python, kernel, and the load before the start: above
               about 0.5, something else is running
  stages       of one program alone: median microseconds and page faults of each
               stage of its process, from the zygote's fork to its end
  bound        their sum, and shares of it: starting and ending a process, and
               page faults (which are part of every stage)
  validation   one input
  determinism  one input in two processes
  judging      eight inputs in one process
  .../endless  256 of these programs, five of which never end
  .../plain    the same in reused processes, without any wall but an alarm
  of_plain     our rate as a share of that
  p50_ms, p99_ms  from a program's start to its verdict, its wait left out
  paper_step   seconds for the verification of one step of the paper's size
               (perf/verification_load.py); how many of the answers
               are right is by construction
"""

import argparse
import dataclasses
import json
import pathlib
import types
from typing import Any

import jax
import jax.numpy as jnp

from azr_jax.corpora.programs import heldout
from azr_jax.executor import Executor, throughput
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.models import attention, load, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.perf import (
  conversations,
  device,
  sampling,
  updating,
  verification_load,
  workload,
)
from azr_jax.rollout import token_sampling
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.tasks.programs.task import InductionTask, Task, Triplet

STEPS = 3
PEERS = ("none", "transformers")
RULES = dict.fromkeys(
  ("vocab", "embed", "heads", "kv_heads", "head_size", "mlp", "layers")
)


def _executor(flags: argparse.Namespace) -> dict[str, Any]:
  for workers in flags.workers:
    ExecutorSettings(workers=workers, timeout_s=flags.timeout_s, memory_mb=512)
  triplets = _triplets(flags.programs)
  programs = [throughput.Program(task.code, task.input) for task in triplets]
  found = {"machine": device.machine()}
  found |= throughput.report(programs, flags.workers, flags.timeout_s)
  for workers in flags.workers:
    found[f"paper_step/workers_{workers}"] = _paper_step(
      workers, flags.timeout_s, triplets
    )
  return found


def _paper_step(
  workers: int, timeout_s: float, triplets: list[Triplet]
) -> dict[str, float]:
  """The quickest of a few; what else ran on the machine only adds."""
  with Executor(workers, timeout_s, memory_mb=512) as executor:
    times = [
      verification_load.measure(executor, triplets) for _ in range(STEPS)
    ]
  best = min(times, key=lambda step: step.total_s)
  return dataclasses.asdict(best) | {"total_s": best.total_s}


def _triplets(path: str | None) -> list[Triplet]:
  if path is None:
    return [_triplet(entry.task) for entry in heldout.read()]
  lines = pathlib.Path(path).read_text(encoding="utf-8").split("\n")
  try:
    records = [json.loads(line) for line in lines if line.strip()]
    found = [Triplet(r["code"], r["input"], r["output"]) for r in records]
  except (ValueError, KeyError, TypeError) as error:
    raise ValueError(
      f"{path}: {error!r}; expected JSON lines with code, input and output"
    ) from None
  if len(found) < verification_load.PROGRAMS:
    raise ValueError(
      f"{path} has {len(found)} programs; expected at least "
      f"{verification_load.PROGRAMS}"
    )
  return found


def _triplet(task: Task) -> Triplet:
  if isinstance(task, InductionTask):
    return Triplet(task.code, task.inputs[0], task.outputs[0])
  return task


class _Setting:
  """The model and its layout, for every device benchmark."""

  def __init__(self, flags: argparse.Namespace):
    sizes = {"data": 1, "fsdp": 1, "tensor": 1}
    self.mesh = mesh_lib.make_mesh(sizes, jax.devices()[:1])
    self.source = load.resolve(flags.model, flags.cache_dir)
    self.model = transformer.Transformer(
      self.source.config,
      jnp.dtype(flags.dtype),
      attention.make(flags.attention, self.mesh, flags.dtype),
      flags.remat,
    )
    self.params = self.source.load_params(self.mesh, RULES)
    self.peer = None
    if flags.peer == "transformers":
      self.peer = _peer().load(self.source.config, self.params, flags.dtype)


def _peer() -> types.ModuleType:
  # Here, for it needs torch, which only the tests' extra has.
  from azr_jax.perf import transformers_peer

  return transformers_peer


def _sampler_workload(flags: argparse.Namespace) -> workload.SamplerWorkload:
  return workload.SamplerWorkload(
    prompts=flags.prompts,
    samples=flags.samples,
    prompt_tokens=flags.prompt_tokens,
    new_tokens=flags.new_tokens,
    slots=flags.slots,
    ragged=flags.ragged,
    top_p=flags.top_p,
  )


def _sampler_runner(
  flags: argparse.Namespace, setting: _Setting
) -> sampling.Runner:
  return sampling.Runner(
    setting.source,
    setting.params,
    setting.model,
    setting.mesh,
    RULES,
    _sampler_workload(flags),
    dict(
      prefill_tokens=flags.prefill_tokens,
      decode_chunk=flags.decode_chunk,
      cache_chunk=flags.cache_chunk,
    ),
  )


def _sampler(flags: argparse.Namespace) -> dict[str, Any]:
  found: dict[str, Any] = {"machine": device.machine()}
  setting = _Setting(flags)
  work = _sampler_workload(flags)
  peer = None
  if setting.peer is not None:
    peer = _peer().sampler(setting.peer, work, setting.source.config.vocab_size)
  runner = _sampler_runner(flags, setting)
  return found | sampling.report(
    runner,
    setting.source.config,
    work,
    jnp.dtype(flags.dtype).itemsize,
    peer,
    flags.repeats,
  )


def _sweep(flags: argparse.Namespace) -> dict[str, Any]:
  """Decoding alone, all slots busy."""
  # Here, for matplotlib comes with the notebooks' extra only.
  from azr_jax.perf import sweep

  setting = _Setting(flags)

  def measure(slots: int, cached: int) -> float:
    settings = SamplerSettings(
      slots=slots,
      prompt_buckets=(cached,),
      max_tokens=flags.decode_chunk,
      prefill_tokens=flags.prefill_tokens,
      decode_chunk=flags.decode_chunk,
      cache_chunk=flags.cache_chunk,
      stop_strings=(),
      top_p=flags.top_p,
    )
    return sweep.decode_rate(
      setting.model,
      setting.params,
      setting.mesh,
      RULES,
      settings,
      flags.repeats,
    )

  found = sweep.sweep(
    measure,
    flags.sweep_slots,
    flags.sweep_lengths,
    at_slots=flags.slots,
    at_length=flags.prompt_tokens,
  )
  machine = device.machine()
  sweep.plot(
    found,
    f"{flags.model}, {flags.dtype}, {jax.devices()[0].device_kind}",
    pathlib.Path(flags.out),
  )
  return {
    "machine": machine,
    "model": flags.model,
    "dtype": flags.dtype,
    f"tokens_per_s_by_slots_at_{flags.prompt_tokens}_cached": found["slots"],
    f"tokens_per_s_by_cached_at_{flags.slots}_slots": found["length"],
  }


def _update_runner(
  flags: argparse.Namespace, setting: _Setting
) -> updating.Runner:
  work = workload.UpdateWorkload(flags.sequences, flags.length, flags.ragged)
  return updating.Runner(
    setting.params,
    setting.model,
    setting.mesh,
    RULES,
    work,
    flags.micro_rows,
    flags.chunk_tokens,
  )


def _update(flags: argparse.Namespace) -> dict[str, Any]:
  found: dict[str, Any] = {"machine": device.machine()}
  setting = _Setting(flags)
  work = workload.UpdateWorkload(flags.sequences, flags.length, flags.ragged)
  peer = None
  if setting.peer is not None:
    peer = _peer().updater(setting.peer, work, setting.source.config.vocab_size)
  runner = _update_runner(flags, setting)
  return found | updating.report(
    runner, setting.source.config, work, peer, flags.repeats
  )


def _step(flags: argparse.Namespace) -> dict[str, Any]:
  """A whole step: answers to the prompts, then the update on them."""
  setting = _Setting(flags)
  flags.sequences = flags.prompts * flags.samples
  flags.length = flags.prompt_tokens + flags.new_tokens
  sampler = _sampler_runner(flags, setting)
  updater = _update_runner(flags, setting)
  sampler.run()
  updater.run()
  times = [(sampler.run(), updater.run()) for _ in range(flags.repeats)]
  best = min(times, key=sum)
  return {
    "machine": device.machine(),
    "sample_s": best[0],
    "update_s": best[1],
    "step_s": sum(best),
  }


def _conversations(flags: argparse.Namespace) -> dict[str, Any]:
  """Rollouts whose scripts sleep, beside those whose scripts do not."""
  work = conversations.Workload(
    flags.conversations,
    flags.prompt_tokens,
    flags.calls,
    flags.reply_tokens,
    flags.result_tokens,
  )
  settings = SamplerSettings(
    slots=flags.slots,
    prompt_buckets=(flags.prompt_tokens,),
    max_tokens=work.max_tokens,
    prefill_tokens=flags.prefill_tokens,
    decode_chunk=flags.decode_chunk,
    cache_chunk=flags.cache_chunk,
    extend_chunk=flags.result_tokens,
    stop_strings=(),
  )
  machine = device.machine()
  setting = _Setting(flags)
  limits = ExecutorSettings(
    workers=flags.workers, timeout_s=flags.timeout_s, memory_mb=512
  )
  limits.check()
  with Executor(
    workers=flags.workers, timeout_s=flags.timeout_s, memory_mb=512
  ) as executor:
    return {"machine": machine} | conversations.report(
      setting.source,
      setting.params,
      setting.model,
      setting.mesh,
      RULES,
      work,
      settings,
      executor,
      flags.sleep_s,
      flags.repeats,
    )


def _add_device_options(parser: argparse.ArgumentParser) -> None:
  add = parser.add_argument
  add("--model", default="random:smollm2-135m", help="a model spec")
  add("--cache_dir", default="~/.cache/azr_jax")
  add("--dtype", default="float32", choices=("float32", "bfloat16"))
  add("--attention", default="auto", choices=attention.NAMES)
  add("--remat", default="none", choices=tuple(transformer.REMAT_POLICIES))
  add("--repeats", type=int, default=3)


def _add_sampler_options(parser: argparse.ArgumentParser) -> None:
  add = parser.add_argument
  add("--prompts", type=int, default=8)
  add("--samples", type=int, default=1, help="of each prompt")
  add("--new_tokens", type=int, default=128)
  add("--top_p", type=float, default=1.0)
  add("--ragged", action="store_true", help="draw the lengths")
  _add_slot_options(parser)


def _add_slot_options(parser: argparse.ArgumentParser) -> None:
  add = parser.add_argument
  add("--prompt_tokens", type=int, default=128)
  add("--slots", type=int, default=8, help="decoded together; peer's batch")
  add("--prefill_tokens", type=int, default=1024)
  add("--decode_chunk", type=int, default=32)
  add("--cache_chunk", type=int, default=128)


def _add_update_options(parser: argparse.ArgumentParser) -> None:
  add = parser.add_argument
  add("--micro_rows", type=int, default=2)
  add("--chunk_tokens", type=int, default=256)


def run() -> None:
  """The console script."""
  parser = argparse.ArgumentParser(
    prog="azr_jax.benchmark",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  commands = parser.add_subparsers(required=True)
  executor = commands.add_parser(
    "executor", help="programs a second, beside a pool without walls"
  )
  executor.add_argument("--workers", type=int, nargs="+", default=[1, 2])
  executor.add_argument("--timeout_s", type=float, default=2.0)
  executor.add_argument("--programs", help="a file of JSON lines")
  executor.set_defaults(measure=_executor)
  sampler = commands.add_parser("sampler", help="sampled tokens a second")
  _add_device_options(sampler)
  sampler.add_argument("--peer", default="none", choices=PEERS)
  _add_sampler_options(sampler)
  sampler.set_defaults(measure=_sampler)
  update = commands.add_parser("update", help="trained tokens a second")
  _add_device_options(update)
  update.add_argument("--peer", default="none", choices=PEERS)
  _add_update_options(update)
  update.add_argument("--ragged", action="store_true", help="draw the lengths")
  update.add_argument("--sequences", type=int, default=8)
  update.add_argument("--length", type=int, default=256, help="of the longest")
  update.set_defaults(measure=_update)
  step = commands.add_parser("step", help="seconds of sampling and an update")
  _add_device_options(step)
  _add_sampler_options(step)
  _add_update_options(step)
  step.set_defaults(measure=_step, peer="none")
  sweep = commands.add_parser("sweep", help="rate against slots and length")
  _add_device_options(sweep)
  _add_sampler_options(sweep)
  sweep.add_argument("--out", default="sampler_rate.png", help="the plot")
  sweep.add_argument(
    "--sweep_slots", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64]
  )
  sweep.add_argument(
    "--sweep_lengths",
    type=int,
    nargs="+",
    default=[128, 256, 512, 1024, 2048, 4096],
  )
  sweep.set_defaults(measure=_sweep, peer="none")
  rollout = commands.add_parser(
    "conversations", help="what sleeping scripts cost a rollout"
  )
  _add_device_options(rollout)
  _add_slot_options(rollout)
  rollout.add_argument("--conversations", type=int, default=64)
  rollout.add_argument("--calls", type=int, default=3, help="scripts of each")
  rollout.add_argument("--reply_tokens", type=int, default=64)
  rollout.add_argument("--result_tokens", type=int, default=16)
  rollout.add_argument("--sleep_s", type=float, default=0.5)
  rollout.add_argument("--workers", type=int, default=64)
  rollout.add_argument("--timeout_s", type=float, default=30.0)
  rollout.set_defaults(
    # A slot for each: one that waits for its script keeps its slot.
    measure=_conversations,
    slots=64,
    prompt_tokens=64,
    peer="none",
  )
  flags = parser.parse_args()
  try:
    found = flags.measure(flags)
  except (ValueError, OSError) as error:
    parser.error(str(error))
  print(json.dumps(_rounded(found), indent=2))


def _rounded(found: Any) -> Any:
  """Four significant digits: more would be noise."""
  if isinstance(found, dict):
    return {name: _rounded(value) for name, value in found.items()}
  return float(f"{found:.4g}") if isinstance(found, float) else found


if __name__ == "__main__":
  run()
