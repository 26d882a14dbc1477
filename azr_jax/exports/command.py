"""Exports a model or a run for other programs, for `azr_jax.export`."""

import pathlib
from collections.abc import Sequence

import ml_collections

from azr_jax.exports import model_card
from azr_jax.learner import critic_files
from azr_jax.models import gguf_export, peft_io, safetensors_io
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.report import reading
from azr_jax.run import checkpoint, console, storage
from azr_jax.trainer import loading
from azr_jax.trainer import settings as train_settings

SAFETENSORS, GGUF, PEFT = "safetensors", "gguf", "peft"
FORMATS = (SAFETENSORS, GGUF, PEFT)
GGUF_FILE = "model.gguf"


def export(
  config: ml_collections.ConfigDict,
  workdir: str,
  out: str,
  dtype: str,
  formats: Sequence[str] = (SAFETENSORS,),
  scores: str = "",
  base: str = "",
  name: str = "",
  is_critic: bool = False,
) -> None:
  """Exports a run's model, or the model of a spec.

  Args:
    config: the config of `configs/evaluate.py`; only mesh and sharding matter.
    workdir: a run folder or a model spec.
    out: the folder to write. It is created if it does not exist.
    dtype: float32, float16 or bfloat16; q8_0 for GGUF only.
    formats: a selection of `FORMATS`. Adapters are merged into their base,
      except by `peft`, which writes them alone, as float32.
    scores: a folder of `azr_jax.evaluate` for the model card. "" looks for
      `WORKDIR_scores`.
    base: the scores of the model before training. "" if there are none.
    name: the model's name in the card. "" uses the name of `out`.
    is_critic: whether to export the run's critic instead of its policy.

  Raises:
    ValueError: the run has no checkpoint, `out` is a run folder, a scores
      folder has no scores, a dtype or format is unknown, or the run has no
      critic.
  """
  _check_formats(formats, dtype)
  if is_critic and tuple(formats) != (SAFETENSORS,):
    raise ValueError(
      f"formats={','.join(formats)}: expected {SAFETENSORS} for a critic"
    )
  spec = storage.resolve(workdir)
  if "/" in workdir and ":" not in workdir and not spec.exists():
    raise ValueError(f"--workdir={workdir}: there is no such folder")
  folder = pathlib.Path(out).expanduser()
  if (folder / "checkpoints").exists() or (folder / "metrics.jsonl").exists():
    raise ValueError(
      f"--out={out}: expected a new folder; this one contains a run"
    )
  is_run = (spec / checkpoint.FOLDER).is_dir()
  if is_critic and not is_run:
    raise ValueError(f"--workdir={workdir}: expected a run, which has a critic")
  given = {"scores": scores, "base": base}
  found = {flag: _scores(flag, path) for flag, path in given.items()}
  if is_run and not scores:
    beside = storage.absolute(workdir.rstrip("/"))
    found["scores"] = reading.read_scores(
      beside.with_name(f"{beside.name}_scores")
    )
  c = train_settings.read(train_settings.EvaluateSettings, config)
  mesh = mesh_lib.make_mesh(c.mesh.sizes())
  step = loading.checkpoint_step(workdir) if is_run else None
  loaded = loading.load_model(
    c, workdir, mesh, step, merges=True, is_critic=is_critic
  )
  title = name or folder.resolve().name
  if is_critic:
    _write_critic(loaded, folder, dtype)
  else:
    _write(loaded, folder, dtype, formats, title)
  card = model_card.build(
    title,
    storage.absolute(workdir.rstrip("/")).name if is_run else workdir,
    spec if is_run else None,
    step,
    found["scores"],
    found["base"],
    [f"model.{kind}" for kind in formats],
    is_critic,
  )
  (folder / model_card.FILE).write_text(card, encoding="utf-8")
  stored = "float32" if PEFT in formats else dtype
  what = f"the critic of {workdir}" if is_critic else workdir
  console.print_status(f"exported {what} to {folder} as {stored}")


def _write_critic(
  loaded: loading.Loaded, folder: pathlib.Path, dtype: str
) -> None:
  """Writes a critic's weights and its policy's tokenizer."""
  source, tokenizer = loaded.source, loaded.source.tokenizer
  critic_files.save(
    loaded.params,
    source.config,
    folder,
    dtype=dtype,
    eos_ids=tokenizer.eos_ids,
    lora=loaded.lora.adapters,
  )
  tokenizer.save(folder)


def _write(
  loaded: loading.Loaded,
  folder: pathlib.Path,
  dtype: str,
  formats: Sequence[str],
  title: str,
) -> None:
  """Writes a model's weights and tokenizer.

  Raises:
    ValueError: PEFT's format is asked of a model without adapters, or of
      adapters whose base nobody else could load.
  """
  source, lora = loaded.source, loaded.lora.adapters
  tokenizer = source.tokenizer
  if PEFT in formats:
    if lora is None:
      raise ValueError(
        f"formats={PEFT}: expected a run or model with adapters; this one has "
        "none"
      )
    if loaded.base_run:
      raise ValueError(
        f"formats={PEFT}: expected adapters of a model; these adapt the run "
        f"{loaded.base_run!r}: export that run, or use formats={SAFETENSORS}"
      )
    base = source.peft_base()
    peft_io.save(loaded.trained, source.config, lora, base, folder)
    tokenizer.save(folder)
    return
  folder.mkdir(parents=True, exist_ok=True)
  if SAFETENSORS in formats:
    safetensors_io.save(
      loaded.params,
      source.config,
      folder,
      dtype=dtype,
      eos_ids=tokenizer.eos_ids,
      lora=lora,
    )
    tokenizer.save(folder)
  if GGUF in formats:
    gguf_export.save(
      loaded.params,
      source.config,
      tokenizer,
      folder / GGUF_FILE,
      dtype=dtype,
      name=title,
      lora=lora,
    )


def _check_formats(formats: Sequence[str], dtype: str) -> None:
  """Raises ValueError if a format is unknown or does not support the dtype."""
  if not formats or not {*formats} <= {*FORMATS}:
    raise ValueError(f"formats={','.join(formats)}: expected some of {FORMATS}")
  if PEFT in formats and len(formats) > 1:
    raise ValueError(
      f"formats={','.join(formats)}: expected {PEFT} alone, because a folder "
      "holds an adapter or a whole model"
    )
  known = tuple(gguf_export.DTYPES)
  if {*formats} != {GGUF}:
    known = tuple(safetensors_io.DTYPES)
  if dtype not in known:
    raise ValueError(
      f"dtype={dtype!r}: expected one of {known} for formats="
      f"{','.join(formats)}"
    )


def _scores(flag: str, path: str) -> dict[str, tuple[float, float]]:
  """Returns the scores in a flag's folder, or {} if the flag is empty."""
  scores = reading.read_scores(storage.resolve(path)) if path else {}
  if path and not scores:
    raise ValueError(f"--{flag}={path}: expected a folder of azr_jax.evaluate")
  return scores
