"""Writes the model card of an export: the README.md of the Hugging Face hub.

It contains only facts from the run folder and its scores. The card of a run
that is still training or has no scores is shorter.
"""

import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import azr_jax
from azr_jax.report import reading
from azr_jax.run import folder as run_folder
from azr_jax.run import metrics, starts
from azr_jax.systems import registry

FILE = "README.md"
# Number of steps that are averaged at each end of a run.
_END_STEPS = 5
_REWARDS = r"((?:reward|correct|formatted)/.+/mean|evaluation/.+/pass@1)"


def build(
  title: str,
  spec: str,
  folder: pathlib.Path | None,
  step: int | None,
  scores: Mapping[str, tuple[float, float]],
  base: Mapping[str, tuple[float, float]],
  files: Sequence[str],
  is_critic: bool = False,
) -> str:
  """Returns the card as Markdown, with the hub's front matter.

  Args:
    title: the model's name.
    spec: the exported run folder's name, or the model spec.
    folder: the run folder. None if the model is not from a run.
    step: the step of the exported checkpoint. None if it is not from a run.
    scores: pass@1 and its standard error for each benchmark.
    base: the same scores of the model before training.
    files: names of the exported files, such as `model.safetensors`.
    is_critic: whether the model is the critic of a run.
  """
  config = run_folder.read_config(folder) if folder is not None else {}
  start = config.get("model", {}).get("source", "") or spec
  task = "token-classification" if is_critic else "text-generation"
  lines = [_front_matter(start, task), f"# {title}", ""]
  if folder is None:
    lines += [
      f"`{spec}`, exported by azr_jax {azr_jax.__version__} without training.",
      "",
    ]
  else:
    lines += _training(config, folder, start, step)
  lines += [] if is_critic else _benchmarks(scores, base)
  lines += _use_critic(title) if is_critic else _use(title, files)
  if folder is not None:
    lines += _configuration(config)
  return "\n".join(lines)


def _front_matter(start: str, task: str) -> str:
  """Returns the metadata for the hub as YAML."""
  lines = [
    "---",
    "library_name: transformers",
    f"pipeline_tag: {task}",
    "tags: [azr_jax, jax, reinforcement-learning]",
  ]
  kind, _, name = start.partition(":")
  if kind == "hf":
    lines.append(f"base_model: {name}")
  return "\n".join([*lines, "---", ""])


def _training(
  config: Mapping[str, Any],
  folder: pathlib.Path,
  start: str,
  step: int | None,
) -> list[str]:
  """Returns facts about the run, and its metrics at both ends."""
  system = config.get("system", "supervised")
  facts = {
    "method": f"`{system}`",
    "started from": _link(_without_folders(start)),
    "steps": f"{step}",
    "seed": f"{config.get('seed')}",
    "code": _commits(folder) or "not recorded",
  }
  paper = _paper(system)
  if paper:
    title, address = paper
    facts["paper"] = f"[{title}]({address})"
  lines = [
    f"Trained with azr_jax; exported by version {azr_jax.__version__}.",
    "",
  ]
  lines += ["| | |", "| --- | --- |"]
  lines += [f"| {name} | {value} |" for name, value in facts.items()]
  return [*lines, "", *_ends(folder, step)]


def _paper(system: str) -> tuple[str, str] | None:
  """Returns the title and URL of a system's paper, or None if unknown."""
  # A user's own system may be missing on this machine.
  return registry.about(system).paper if system in registry.SYSTEMS else None


def _link(spec: str) -> str:
  """Returns a model spec, as a link if the model is on the hub."""
  kind, _, name = spec.partition(":")
  link = f"[{name}](https://huggingface.co/{name})"
  return link if kind == "hf" else f"`{spec}`"


def _commits(folder: pathlib.Path) -> str:
  """Returns the commits that the run was started at; "" if none is recorded."""
  return ", ".join(f"commit `{one}`" for one in starts.commits(folder))


def _ends(folder: pathlib.Path, step: int | None) -> list[str]:
  """Returns a table of rewards at the start and at the exported step."""
  if not (folder / metrics.METRICS).exists():
    return []
  (run,) = reading.read_runs([str(folder)], max_texts=0)
  done = [i for i, at in enumerate(run.steps) if step is None or at <= step]
  rows = []
  for name, values in sorted(run.series(_REWARDS).items()):
    known = [value for i in done if (value := values[i]) is not None]
    if len(known) >= 2 * _END_STEPS:
      first = statistics.mean(known[:_END_STEPS])
      last = statistics.mean(known[-_END_STEPS:])
      rows.append(f"| `{name}` | {first:.3f} | {last:.3f} |")
  if not rows:
    return []
  count = f"{_END_STEPS} steps"
  return [
    "## In training",
    "",
    f"| mean over | first {count} | last {count} |",
    "| --- | --- | --- |",
    *rows,
    "",
  ]


def _benchmarks(
  scores: Mapping[str, tuple[float, float]],
  base: Mapping[str, tuple[float, float]],
) -> list[str]:
  """Returns a table of pass@1 in percent, with standard errors over items."""
  if not scores:
    return []
  lines = ["## Benchmarks", "", "pass@1 in percent, +- one standard error:", ""]
  lines += ["| benchmark | before | after |", "| --- | --- | --- |"]
  for name, score in scores.items():
    before = _percent(base[name]) if name in base else ""
    lines.append(f"| {name} | {before} | {_percent(score)} |")
  return [*lines, ""]


def _percent(score: tuple[float, float]) -> str:
  value, error = score
  return f"{100 * value:.1f}" + (f" +- {100 * error:.1f}" if error else "")


def _use_critic(title: str) -> list[str]:
  """Returns instructions for reading the values of a critic."""
  return [
    "## Use",
    "",
    "A critic: the logit at a token is the value of the text up to it, the "
    "reward that the policy is expected to earn.",
    "",
    "```python",
    "import transformers",
    "",
    "model = transformers.AutoModelForTokenClassification.from_pretrained("
    f'"{title}")',
    "values = model(token_ids).logits[..., 0]",
    "```",
    "",
  ]


def _use(title: str, files: Sequence[str]) -> list[str]:
  """Returns instructions for running the files."""
  lines = ["## Use", ""]
  if any(file.endswith(".safetensors") for file in files):
    lines += [
      "```python",
      "import transformers",
      "",
      f'tokenizer = transformers.AutoTokenizer.from_pretrained("{title}")',
      f'model = transformers.AutoModelForCausalLM.from_pretrained("{title}")',
      "```",
      "",
      f"vLLM: `vllm serve {title}`.",
    ]
  lines += [
    f"llama.cpp: `llama-server -m {file}`."
    for file in files
    if file.endswith(".gguf")
  ]
  return [*lines, ""]


def _configuration(config: Mapping[str, Any]) -> list[str]:
  """Returns the run's config without machine-specific keys."""
  shown = _shown(config, "")
  return [
    "## Configuration",
    "",
    "<details><summary>settings that affect training</summary>",
    "",
    "```json",
    json.dumps(shown, indent=2),
    "```",
    "",
    "</details>",
    "",
  ]


def _shown(value: Any, key: str) -> Any:
  """Drops machine-specific keys, and the folders of paths."""
  if isinstance(value, Mapping):
    parts = {
      name: _shown(one, f"{key}{name}.")
      for name, one in value.items()
      if not f"{key}{name}.".startswith(run_folder.MUTABLE_KEYS)
    }
    return {name: part for name, part in parts.items() if part != {}}
  if isinstance(value, list | tuple):
    return [_shown(one, key) for one in value]
  return _without_folders(value) if isinstance(value, str) else value


def _without_folders(text: str) -> str:
  """Returns the last part of an absolute path; leaves other texts unchanged."""
  if text.startswith(("/", "~/")):
    return pathlib.PurePosixPath(text).name
  return text
