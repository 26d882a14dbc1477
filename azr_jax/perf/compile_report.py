"""Compiles a run for a named TPU slice and reports memory and minimum times.

Nothing runs on the slice: the TPU compiler works on any x86 Linux machine.
"""

import dataclasses
import importlib.util
import pathlib
from typing import Any

import jax
from jax.experimental import topologies

from azr_jax.models import load, presets
from azr_jax.models.config import ModelConfig
from azr_jax.models.settings import ModelSettings
from azr_jax.parallel import chips
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.perf import compiled, roofline
from azr_jax.trainer import build
from azr_jax.trainer.settings import ExperimentSettings

# Memory of a device that the compiler reports as reserved for itself.
RESERVED_BYTES = 0.3e9
# Assumed mean tokens of a prompt and of a completion.
MEAN_TOKENS = 1024
_LARGER_MESH = "a larger mesh.fsdp (more chips)"
# Program -> keys to change if it does not fit.
_SUGGESTIONS = {
  "start_copy": _LARGER_MESH,
  "start_critic": _LARGER_MESH,
  "start_policy": _LARGER_MESH,
  "restore": _LARGER_MESH,
  "prefill": "fewer rollout.prefill_tokens or rollout.slots, or a larger "
  "rollout.mesh.tensor",
  "insert": "fewer rollout.slots or a larger rollout.mesh.tensor",
  "decode": "fewer rollout.slots, a larger rollout.mesh.tensor, or a larger "
  "mesh.fsdp",
  "score": "smaller learner.chunk_tokens or learner.micro_rows, or a larger "
  "mesh.fsdp",
  "estimate": "smaller learner.micro_rows, or a larger mesh.fsdp",
  "critic": "a larger mesh.fsdp (more chips), smaller learner.micro_rows, or "
  "model.remat='full'",
  "extend": "smaller rollout.extend_chunk or rollout.slots, or a larger "
  "rollout.mesh.tensor",
  "update": "a larger mesh.fsdp (more chips), smaller learner.micro_rows or "
  "learner.chunk_tokens, or model.remat='full'",
}


def topology_devices(name: str) -> list[jax.Device]:
  """Returns the devices of a TPU slice by name, e.g. v5p:4x4x2.

  Raises:
    ValueError: the chip or the shape is unknown.
  """
  kind = name.partition(":")[0]
  if kind not in chips.TPUS or ":" not in name:
    raise ValueError(
      f"topology={name!r}: expected CHIP:SHAPE, e.g. v5e:8x8 or v5p:4x4x2, "
      f"with a chip of {tuple(chips.TPUS)}"
    )
  if importlib.util.find_spec("libtpu") is None:
    raise ModuleNotFoundError("the TPU compiler is missing", name="libtpu")
  options = {}
  if kind == "v4":  # Both cores of a chip act as one device, as on real slices.
    options["chip_config_name"] = "megacore"
  try:
    description = topologies.get_topology_desc(
      platform="tpu", topology_name=name, **options
    )
  except jax.errors.JaxRuntimeError as error:
    raise ValueError(f"topology={name!r}: {error}") from None
  return list(description.devices)


def config_of(c: ModelSettings) -> ModelConfig:
  """Returns the config of a run's model, which need not exist yet."""
  if c.preset and not pathlib.Path(c.source).expanduser().is_dir():
    return presets.PRESETS[c.preset]
  return load.config_of(c.source, c.cache_dir)


def compile_check(
  settings: ExperimentSettings,
  topology: str,
  prompt_tokens: float | None = None,
  new_tokens: float | None = None,
) -> tuple[dict[str, Any], bool]:
  """Compiles every program of a run, and estimates the time of a step.

  Args:
    settings: a training configuration.
    topology: e.g. v5p:4x4x2.
    prompt_tokens: mean tokens of a prompt, for the estimate; None takes
      `MEAN_TOKENS`, or the largest bucket if that is less.
    new_tokens: mean tokens of a completion; None takes `MEAN_TOKENS`, or the
      longest completion if that is less.

  Returns:
    The report, and whether every program fits into a device's memory.
  """
  c = settings.trunk
  if prompt_tokens is None:
    prompt_tokens = min(MEAN_TOKENS, c.rollout.prompt_buckets[-1])
  if new_tokens is None:
    new_tokens = min(MEAN_TOKENS, c.rollout.max_tokens)
  devices = topology_devices(topology)
  chip = chips.TPUS[topology.partition(":")[0]]
  mesh = mesh_lib.make_mesh(c.mesh.sizes(), devices)
  sampling = build.rollout_mesh(c.rollout.mesh, mesh)
  config = config_of(c.model)
  tokens = roofline.step_load(settings, prompt_tokens, new_tokens)
  programs = compiled.compile_all(c, config, mesh)
  usable_bytes = chip.hbm_bytes - RESERVED_BYTES
  estimate = roofline.estimate(
    c,
    config,
    chip,
    len(devices),
    sampling.shape["tensor"],
    mesh_lib.padded_rows(c.learner.micro_rows, mesh),
    tokens,
    programs[-1].collectives,
  )
  report: dict[str, Any] = {
    "topology": topology,
    "devices": len(devices),
    "mesh": dict(mesh.shape),
    "rollout_mesh": dict(sampling.shape),
    "hbm_gib": chip.hbm_bytes / chips.GIB,
    "programs": [
      dataclasses.asdict(program)
      | {
        "peak_gib": program.peak_bytes / chips.GIB,
        "fits": not program.overflow and program.peak_bytes <= usable_bytes,
      }
      for program in programs
    ],
    "estimate": dataclasses.asdict(estimate) | {"step_s": estimate.step_s},
    "assumed": roofline.assumptions(tokens),
  }
  return report, all(program["fits"] for program in report["programs"])


def show(report: dict[str, Any]) -> str:
  """Formats a report of `compile_check` as a table and a few lines."""
  lines = [
    f"{report['topology']}: {report['devices']} devices of "
    f"{report['hbm_gib']:.0f} GiB, mesh {report['mesh']}, sampling on "
    f"{report['rollout_mesh']}",
    "",
    f"{'program':13}{'GiB':>7}{'of it resident':>16}{'TFLOP*':>9}{'GB*':>8}"
    f"{'compile s':>11}  collectives (count, GB of results on a device)",
  ]
  for program in report["programs"]:
    moved = "  ".join(
      f"{kind} {total['count']} x, {total['bytes'] / 1e9:.2f}"
      for kind, total in program["collectives"].items()
    )
    resident_gib = program["resident_bytes"] / chips.GIB
    lines.append(
      f"{program['name']:13}{program['peak_gib']:7.3g}{resident_gib:16.3g}"
      f"{program['flops'] / 1e12:9.2g}{program['bytes'] / 1e9:8.3g}"
      f"{program['compile_s']:11.0f}  {moved or 'none'}"
      + ("" if program["fits"] else "  DOES NOT FIT")
    )
  e, a = report["estimate"], report["assumed"]
  lines += [
    "* of one device, each loop's body counted once, as the compiler does",
    "",
    f"At best: {e['step_s']:.3g} s a step = prefill {e['prefill_s']:.2g} + "
    f"decode {e['decode_s']:.3g} + update {e['update_s']:.2g}"
    + (f" + critic {e['critic_s']:.2g}" if e["critic_s"] else "")
    + "; decode "
    f"{e['decode_tokens_per_s']:,.0f} tokens/s; update "
    f"{e['update_tokens_per_s']:,.0f} tokens/s, "
    f"{e['update_mfu']:.0%} of the matrix units, bound by {e['update_bound']}"
    + ("" if report["programs"][-1]["fits"] else ", links not counted"),
    f"Assumed: {a['sequences']} completions of {a['new_tokens']:.0f} tokens to "
    f"{a['prompts']} prompts of {a['prompt_tokens']:.0f}, {a['trained']} "
    "trained on; data-sheet rates, transfers hidden, slots always full, no "
    "time for the host or for grading",
  ]
  lines += [
    f"{program['name']} does not fit: try {_SUGGESTIONS[program['name']]}"
    for program in report["programs"]
    if not program["fits"]
  ]
  return "\n".join(lines)
