"""Writes a run's newest checkpoint as a Hugging Face safetensors folder.

python -m azr_jax.export --config=configs/evaluate.py --workdir=RUN --out=DIR
"""

import pathlib

import ml_collections
from absl import app, flags, logging
from ml_collections import config_flags

from azr_jax import evaluate
from azr_jax.models import safetensors_io
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.run import metrics


def export(
  config: ml_collections.ConfigDict, workdir: str, out: str, dtype: str
) -> None:
  """Exports the model of a run folder (or of a model spec).

  Args:
    config: `configs.evaluate.get_config()`; its mesh and sharding are used.
    workdir: a run folder, or any model spec.
    out: the folder to write; made if missing.
    dtype: float32, float16 or bfloat16.

  Raises:
    ValueError: the run has no checkpoint, or the dtype is unknown.
  """
  if dtype not in safetensors_io.DTYPES:
    raise ValueError(
      f"dtype={dtype!r}: expected one of {tuple(safetensors_io.DTYPES)}"
    )
  mesh = mesh_lib.make_mesh(config.mesh)
  source, params = evaluate.load_model(config, workdir, mesh)
  folder = pathlib.Path(out).expanduser()
  tokenizer = source.tokenizer
  safetensors_io.save(
    params, source.config, folder, dtype=dtype, eos_ids=tokenizer.eos_ids
  )
  tokenizer.save(folder)
  metrics.say(f"{workdir} is in {folder} as {dtype}")


def run() -> None:
  """The console script."""
  config = config_flags.DEFINE_config_file(
    "config", "configs/evaluate.py", "Mesh and sharding."
  )
  workdir = flags.DEFINE_string(
    "workdir", None, "A run folder or model spec.", required=True
  )
  out = flags.DEFINE_string("out", None, "The folder to write.", required=True)
  dtype = flags.DEFINE_string("dtype", "bfloat16", "Type of the weights.")

  def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)
    export(config.value, workdir.value, out.value, dtype.value)

  app.run(main)


if __name__ == "__main__":
  run()
