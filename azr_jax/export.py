"""Writes a run's newest checkpoint as a Hugging Face safetensors folder.

python -m azr_jax.export --workdir=RUN --out=DIR [--dtype=float32]
"""

import pathlib

import ml_collections
from absl import flags

from azr_jax.cli import front
from azr_jax.models import safetensors_io
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.run import console, storage
from azr_jax.trainer import restore
from azr_jax.trainer import settings as train_settings


def export(
  config: ml_collections.ConfigDict, workdir: str, out: str, dtype: str
) -> None:
  """Exports the model of a run folder (or of a model spec).

  Args:
    config: of `configs/evaluate.py`; its mesh and sharding are used.
    workdir: a run folder, or any model spec.
    out: the folder to write; made if missing.
    dtype: float32, float16 or bfloat16.

  Raises:
    ValueError: the run has no checkpoint, `out` holds a run, or the dtype is
      unknown.
  """
  if dtype not in safetensors_io.DTYPES:
    raise ValueError(
      f"dtype={dtype!r}: expected one of {tuple(safetensors_io.DTYPES)}"
    )
  spec = storage.resolve(workdir)
  if "/" in workdir and ":" not in workdir and not spec.exists():
    raise ValueError(f"--workdir={workdir}: there is no such folder")
  folder = pathlib.Path(out).expanduser()
  if (folder / "checkpoints").exists() or (folder / "metrics.jsonl").exists():
    raise ValueError(
      f"--out={out}: expected a folder of its own, because this one holds a run"
    )
  c = train_settings.read(train_settings.EvaluateSettings, config)
  mesh = mesh_lib.make_mesh(c.mesh.sizes())
  source, params = restore.load_model(c, workdir, mesh)
  tokenizer = source.tokenizer
  safetensors_io.save(
    params, source.config, folder, dtype=dtype, eos_ids=tokenizer.eos_ids
  )
  tokenizer.save(folder)
  console.print_status(f"{workdir} is in {folder} as {dtype}")


def run() -> None:
  """Runs the command."""
  config = front.config_flag("Mesh and sharding.")
  workdir = flags.DEFINE_string(
    "workdir", None, "A run folder or model spec.", required=True
  )
  out = flags.DEFINE_string("out", None, "The folder to write.", required=True)
  dtype = flags.DEFINE_string("dtype", "bfloat16", "Type of the weights.")
  front.run(
    __doc__,
    lambda: export(config.value, workdir.value, out.value, dtype.value),
    default_config="configs/evaluate.py",
  )


if __name__ == "__main__":
  run()
