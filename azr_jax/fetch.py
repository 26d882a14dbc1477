"""Copies a model's files to a folder that all machines of a run can read.

  python -m azr_jax.fetch --model=hf:OWNER/NAME --out=gs://BUCKET/FOLDER

One machine, which may hold a hub token, downloads the model once for all hosts
of a slice. Files pass through this machine one at a time. Runs use the folder
as their model. After an interruption, the same command resumes; it does nothing
if the model is complete.
"""

import pathlib
import tempfile

from absl import flags

from azr_jax.cli import front
from azr_jax.cli.errors import UsageError
from azr_jax.models import load, stored
from azr_jax.run import console, storage


def fetch(model: str, out: str) -> None:
  """Copies the missing files of a model on the hub.

  Args:
    model: hf:OWNER/NAME.
    out: the folder, local or in an object store. Created if missing.

  Raises:
    ValueError: the hub does not provide the model.
    OSError: a file cannot be written.
  """
  kind, _, name = model.partition(":")
  if kind != "hf" or not name:
    raise UsageError(f"--model={model}: expected hf:OWNER/NAME")
  folder = storage.resolve(out)
  if (folder / stored.LAST_FILE).exists():
    console.print_status(f"{model} is already in {folder}")
    return
  names = sorted(
    load.hub_files(name), key=lambda file: file == stored.LAST_FILE
  )
  for number, file in enumerate(names, 1):
    if not (folder / file).exists():
      console.print_status(f"{number}/{len(names)} {file}")
      with tempfile.TemporaryDirectory() as scratch:
        _put(load.hub_file(name, file, scratch), folder / file)
  console.print_status(f"{model} is in {folder}")


def _put(path: pathlib.Path, target: pathlib.Path) -> None:
  """Copies a file so that a partial copy is never mistaken for the whole."""
  if storage.is_object_store(target):
    storage.copy(path, target)
    return
  partial = target.with_name(f"{target.name}.partial")
  storage.copy(path, partial)
  partial.replace(target)


def run() -> None:
  """Runs the command."""
  model = flags.DEFINE_string("model", None, "hf:OWNER/NAME.", required=True)
  out = flags.DEFINE_string(
    "out", None, "The folder, local or gs://BUCKET/FOLDER.", required=True
  )
  front.run(__doc__, lambda: fetch(model.value, out.value))


if __name__ == "__main__":
  run()
