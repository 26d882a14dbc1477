"""Training and models from Python, in a notebook or a script.

  from azr_jax import api

  def palindrome(prompt, completion):
    return float(completion == completion[::-1])

  run = api.train("hf:OWNER/NAME", data=rows, reward=palindrome, workdir="W")
  model = api.load("W")
  model.sample("A palindrome: ", n=4)

It builds a config of system `custom` and calls the same code as the commands.
So repeating a killed call resumes the run, and the folder is like any other.
docs/guide/reward.md explains data and rewards.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections

from azr_jax.cli import compilation_cache
from azr_jax.config import overrides as overrides_lib
from azr_jax.config import settings as settings_lib
from azr_jax.config.settings import Invalid
from azr_jax.configs import custom as custom_config
from azr_jax.functions import spec as spec_lib
from azr_jax.learner import advantages
from azr_jax.learner.distillation import (
  AVERAGE,
  INITIAL,
  POLICY,
  DistillSettings,
)
from azr_jax.learner.settings import CriticSettings, OptimizerSettings
from azr_jax.models import load as load_lib
from azr_jax.models import presets, sampling_params
from azr_jax.models.config import ModelConfig
from azr_jax.models.settings import LoraSettings, ModelSettings
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel import memory
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.settings import MeshSettings
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.run import dates, metrics, storage
from azr_jax.run import folder as folder_lib
from azr_jax.systems.custom import rewards as rewards_lib
from azr_jax.systems.custom import system as custom
from azr_jax.systems.custom.judge import JudgeSettings as Judge
from azr_jax.systems.custom.settings import CustomSettings
from azr_jax.tasks.table import reading
from azr_jax.tasks.table.prompts import PromptWriter
from azr_jax.tasks.table.reading import Row, RowReader
from azr_jax.trainer import build, decoders, loading, sizes, start, teachers
from azr_jax.trainer import settings as train_settings
from azr_jax.trainer.interactive import Model, Sample

__all__ = ["FinishedRun", "Judge", "Model", "Sample", "load", "train"]

# A data source, as in `custom.data`, or rows.
Data = str | Iterable[Mapping[str, Any]]
# A function, its spec, or a model behind a URL.
Reward = Callable[..., Any] | str | Judge
# Keys with JSON values in configs. Callers may pass a dictionary.
_TEMPLATE_KWARGS = ".chat_template_kwargs"
# Sections that short names are looked up in. The first match wins.
_SECTIONS = (
  "custom",
  "train",
  "rollout",
  "learner",
  "optimizer",
  "evaluation",
  "model",
)


@dataclasses.dataclass(frozen=True)
class FinishedRun:
  """A finished run.

  Attributes:
    workdir: the run's folder.
    metrics: the metrics of each step, by name.
  """

  workdir: str
  metrics: Sequence[Mapping[str, float]]

  def series(self, name: str) -> list[float]:
    """Returns the values of a metric, from all steps that have it.

    Raises:
      KeyError: no step has the metric. The message lists the available ones.
    """
    found = [row[name] for row in self.metrics if name in row]
    if not found:
      known = sorted({name for row in self.metrics for name in row})
      raise KeyError(f"{name!r}: expected one of {known}")
    return found

  @property
  def rewards(self) -> list[float]:
    """The mean reward of each step."""
    return self.series("reward/custom/solve/mean")


def train(
  model: str,
  data: Data,
  reward: Reward | tuple[Reward, float] | Sequence[Any],
  workdir: str,
  *,
  eval_data: Data | None = None,
  config: Mapping[str, Any] | None = None,
  **overrides: Any,
) -> FinishedRun:
  """Trains a model on rows with rewards, resuming from the run's folder.

  Args:
    model: a model spec, such as hf:OWNER/NAME, or a folder.
    data: rows, each a dictionary, or a source such as FILE.jsonl.
    reward: a function, FILE.py:NAME, a `Judge`, a pair (one of these, weight),
      or a list of all these. Functions may be defined in a notebook: their code
      is sent to separate processes, which call them.
    workdir: the run's folder, local or as gs://BUCKET/FOLDER.
    eval_data: held-out rows, scored with the same rewards every
      `evaluation.every` steps. None uses `eval_fraction` of the data, if set.
    config: values by dotted key, such as {"rollout.slots": 64}.
    **overrides: values by the last part of their key, such as steps=100,
      estimator="rloo", group_size=8, max_tokens=256, learning_rate=1e-6. Sizes
      that you leave out (prompts, slots, rows, chunks of logits) follow from
      the data, the longest prompt and free memory. A resumed run keeps the
      sizes of its first start.

  Returns:
    The run, with its metrics.

  Raises:
    ValueError: a value is not allowed, or the folder has another run.
    RuntimeError: see `trainer.loop.train`.
  """
  compilation_cache.enable()
  changes = {"model.source": model, **_changes(overrides), **(config or {})}
  c = _config(changes)
  parts, functions = _rewards(reward, c)
  c.custom.reward = ",".join(parts)
  table = settings_lib.build(CustomSettings, c.custom.to_dict())
  rows, c.custom.data = _rows(data, table.reader)
  if "custom.prompts" not in changes:
    trained, _ = reading.hold_out(rows, c.custom.eval_fraction, c.seed)
    c.custom.prompts = max(1, min(c.custom.prompts, len(trained)))
  eval_rows = None
  if eval_data is not None:
    eval_rows, c.custom.eval_data = _rows(eval_data, table.reader)
  if eval_rows is not None or c.custom.eval_fraction:
    c.evaluation.every = changes.get("evaluation.every", c.train.save_every)
  source = load_lib.resolve(c.model.source, c.model.cache_dir)
  folder = storage.resolve(workdir)
  # Templates may show the date, and a resumed run must keep its sizes.
  source = source.dated(dates.read(folder))
  longest = _longest(
    [*rows, *(eval_rows or ())], table.writer, source.tokenizer
  )
  responses = c.custom.prompts * c.custom.group_size
  begun_with = folder_lib.begun_config(folder)
  _fit(c, longest, responses, changes, source.config, begun_with)
  given = custom.Given(rows, eval_rows, functions)
  system = type("Custom", (custom.Custom,), {"given": given})
  checked = dataclasses.replace(train_settings.read_train(c), system=system)
  start.train(checked, c, workdir)
  return FinishedRun(workdir, _metrics(workdir))


def load(
  spec: str,
  *,
  prompt_tokens: int = 256,
  batch_size: int = 64,
  config: Mapping[str, Any] | None = None,
  **overrides: Any,
) -> Model:
  """Loads a model, or a run's newest checkpoint, for interactive use.

  Args:
    spec: a model spec, or a run's folder.
    prompt_tokens: the longest prompt, in tokens.
    batch_size: the number of responses per update.
    config, **overrides: as for `train`.

  Raises:
    ValueError: the model does not exist, or a value is not allowed.
  """
  compilation_cache.enable()
  changes = {**_changes(overrides), **(config or {})}
  c = _config(changes)
  folder = storage.resolve(spec)
  is_run = loading.checkpoint_step(spec) is not None
  c.model.source = spec
  if is_run:
    begun = loading.read_run_config(folder)
    c.model.source = begun.model.source
    _set_lora(c, begun.to_dict().get("lora", {}), changes)
  source = load_lib.resolve(c.model.source, c.model.cache_dir)
  if source.lora is not None:
    own = vars(source.lora)
    _set_lora(c, {k: v for k, v in own.items() if k in c.lora}, changes)
  _fit(c, prompt_tokens, batch_size, changes, source.config)
  checked = train_settings.read_train(c)
  learner, teacher = checked.shared.learner, checked.shared.distill.teacher
  for key, value, expected, is_wrong in (
    ("kl_coef", learner.kl_coef, "0.0", learner.kl_coef > 0),
    (
      "distill.teacher",
      teacher,
      f"{POLICY!r}, {AVERAGE!r} or another model",
      teacher == INITIAL,
    ),
  ):
    if is_wrong:
      raise Invalid(
        key,
        f"={value!r}: expected {expected}, because a loaded model keeps no "
        "reference policy",
      )
  table = checked.system_settings
  assert isinstance(table, CustomSettings)
  experiment = build.build(checked)
  if not is_run:
    return Model(
      experiment,
      experiment.load_base(),
      experiment.load_trained(),
      table.writer,
      table.prefill,
    )
  sampling = train_settings.SamplingSettings(
    model=ModelSettings(dtype=checked.shared.model.dtype),
    mesh=checked.shared.mesh,
    sharding=checked.shared.sharding,
  )
  mesh = mesh_lib.make_mesh(sampling.mesh.sizes())
  loaded = loading.load_model(sampling, spec, mesh)
  return Model(
    experiment,
    sampling_params.arrange(experiment.model, loaded.base),
    loaded.trained,
    table.writer,
    table.prefill,
  )


def _set_lora(
  c: ml_collections.ConfigDict,
  own: Mapping[str, Any],
  changes: Mapping[str, Any],
) -> None:
  """Sets the adapters of a loaded model.

  Raises:
    Invalid: the caller asks for others.
  """
  wanted = {k: v for k, v in changes.items() if k.startswith("lora.")}
  c.lora.update(own)
  for key, value in wanted.items():
    found = c.lora[key.removeprefix("lora.")]
    if found != value:
      raise Invalid(key, f"={value!r}: expected {found!r}, the model's own")


def _config(changes: Mapping[str, Any]) -> ml_collections.ConfigDict:
  """Returns a config with the objective of `configs/custom.py`.

  Args:
    changes: values by dotted key, which take precedence.

  Raises:
    Invalid: a key is unknown.
  """
  c = train_settings.train_config("custom")
  custom_config.set_objective(c)
  c.rollout.max_tokens = 256
  if jax.default_backend() != "cpu":
    c.model.dtype = "bfloat16"
  known = overrides_lib.flatten(c)
  for key, value in changes.items():
    if key not in known:
      raise settings_lib.unknown(key, value, known).inside("config")
  values = {
    key: json.dumps(value)
    if key.endswith(_TEMPLATE_KWARGS) and isinstance(value, Mapping)
    else value
    for key, value in changes.items()
  }
  with c.ignore_type():
    c.update_from_flattened_dict(values)
  return c


def _changes(overrides: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the overrides by dotted key.

  Raises:
    Invalid: no section has a key of that name.
  """
  keys = overrides_lib.flatten(train_settings.train_config("custom"))
  changes = {}
  for name, value in overrides.items():
    candidates = [name, *(f"{section}.{name}" for section in _SECTIONS)]
    found = [key for key in candidates if key in keys]
    if not found:
      raise settings_lib.unknown(name, value, keys, _spelled)
    changes[found[0]] = value
  return changes


def _spelled(key: str) -> str:
  """Returns the spelling of a key as an argument of `train` or `load`."""
  section, _, name = key.rpartition(".")
  is_short = section in (*_SECTIONS, "")
  return name if is_short else f"config={{{key!r}: ...}}"


def _rewards(
  reward: Any, c: ml_collections.ConfigDict
) -> tuple[list[str], dict[str, spec_lib.Function]]:
  """Returns the parts of `custom.reward`, and the functions among them.

  The settings of a judge are copied into the config.
  """
  parts: list[str] = []
  functions: dict[str, spec_lib.Function] = {}
  for one in reward if isinstance(reward, list) else [reward]:
    value, weight = one if isinstance(one, tuple) else (one, 1.0)
    spec = value
    if isinstance(value, Judge):
      if c.custom.judge.url:
        raise Invalid("reward", ": expected at most one Judge")
      c.custom.judge = overrides_lib.to_config(value)
      spec = "judge"
    elif callable(value):
      function = spec_lib.given(value)
      name = metrics.plain_name(function.name)
      while name in functions:
        name += "_2"
      functions[name] = function
      spec = f"{rewards_lib.GIVEN}{name}"
    parts.append(f"{float(weight)!r}*{spec}")
  return parts, functions


def _rows(data: Data, reader: RowReader) -> tuple[list[Row], str]:
  """Returns rows, and the value of `custom.data` that identifies them."""
  if isinstance(data, str):
    return reader.read(data), data
  if hasattr(data, "to_dict") and hasattr(data, "columns"):  # A data frame.
    data = data.to_dict("records")
  rows = reader.of_records(data)
  if not rows:
    raise ValueError("data: expected at least one row")
  return rows, f"{custom.GIVEN_DATA}{len(rows)} rows, {reading.digest(rows)}"


def _longest(
  rows: Sequence[Row], writer: PromptWriter, tokenizer: Tokenizer
) -> int:
  """Returns the length of the longest prompt in tokens."""
  texts = (writer.text(row, tokenizer) for row in rows)
  return max(len(tokenizer.encode_prompt(text)) for text in texts)


def _fit(
  c: ml_collections.ConfigDict,
  longest_prompt: int,
  responses: int,
  changes: Mapping[str, Any],
  model: ModelConfig,
  begun_with: Mapping[str, Any] | None = None,
) -> None:
  """Sets the sizes that the caller left out.

  Args:
    c: the config. It is modified in place.
    longest_prompt: the length of the longest prompt in tokens.
    responses: the number of responses per update.
    changes: the values that the caller set, by dotted key.
    model: the model's config.
    begun_with: the config that a resumed run started with, whose sizes stay.
      None for a new run, or without a run.

  Raises:
    ValueError: `max_tokens` exceeds the model's `max_position_embeddings`.
  """
  # Check the sections whose values are read here first.
  rollout = _section(SamplerSettings, c, "rollout")
  mesh = _section(MeshSettings, c, "mesh")
  computing = _section(ModelSettings, c, "model")
  lora = _section(LoraSettings, c, "lora")
  max_tokens = rollout.max_tokens if "rollout.max_tokens" in changes else 0
  if max_tokens > model.max_positions:
    raise ValueError(
      f"max_tokens={max_tokens}: expected at most {model.max_positions}, the "
      "model's max_position_embeddings"
    )
  available = memory.available_bytes()
  bounds = None
  if available is not None:
    bounds = sizes.Memory(
      model,
      computing.dtype,
      computing.remat,
      c.learner.estimator == advantages.GAE,
      available,
      jax.device_count(),
      jax.default_backend(),
      lora.adapters,
      lora.base_bytes(model, computing.dtype) + _teacher_bytes(c, computing),
      _state_size(c, computing),
    )
  fitted = sizes.fitted(
    rollout.max_tokens,
    longest_prompt,
    responses,
    bounds,
    mesh_lib.batch_devices(mesh_lib.make_mesh(mesh.sizes())),
    max(c.learner.minibatches, 1),
  )
  kept = overrides_lib.flatten(begun_with or {})
  c.update_from_flattened_dict(
    {
      key: kept.get(key, size)
      for key, size in fitted.items()
      if key not in changes
    }
  )


def _teacher_bytes(c: ml_collections.ConfigDict, model: ModelSettings) -> int:
  """Returns the bytes of a teacher that is another model; 0 without one."""
  distill = _section(DistillSettings, c, "distill")
  config = teachers.config_of(distill, model.cache_dir)
  if config is None:
    return 0
  return presets.parameter_count(config) * jnp.dtype(model.dtype).itemsize


def _state_size(c: ml_collections.ConfigDict, model: ModelSettings) -> float:
  """Returns the bytes of a trained parameter and its moments, in all networks.

  Args:
    c: a training config.
    model: the section that sets the dtype of parameters.
  """
  optimizer = _section(OptimizerSettings, c, "optimizer")
  distill = _section(DistillSettings, c, "distill")
  size = decoders.state_size(model, optimizer, distill)
  if c.learner.estimator == advantages.GAE:
    critic = _section(CriticSettings, c, "critic")
    size += decoders.state_size(model, critic.optimizer)
  return size


def _section(
  cls: type[settings_lib.SettingsT], c: ml_collections.ConfigDict, name: str
) -> settings_lib.SettingsT:
  """Returns the checked settings of a section.

  Raises:
    Invalid: a value is not allowed.
  """
  try:
    return settings_lib.build(cls, c[name].to_dict())
  except Invalid as error:
    raise error.inside(name).inside("config") from None


def _metrics(workdir: str) -> list[dict[str, float]]:
  path = storage.resolve(workdir) / metrics.METRICS
  return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
