"""Puts a model's files into a folder that all machines of a run read.

  python -m azr_jax.fetch --model=hf:OWNER/NAME --out=gs://BUCKET/FOLDER

So a model is downloaded once, by one machine that may have a token, and not by
every host of a slice. The files pass through this machine one by one. Runs take
the folder as their model. The same command goes on after an interruption, and
does nothing if the model is there.
"""

import pathlib
import tempfile

from absl import flags

from azr_jax.cli import front
from azr_jax.cli.errors import UsageError
from azr_jax.models import load, stored
from azr_jax.run import console, storage


def fetch(model: str, out: str) -> None:
  """Copies the files of a model of the hub that are not there yet.

  Args:
    model: hf:OWNER/NAME.
    out: the folder, here or in an object store; made if missing.

  Raises:
    ValueError: the hub does not give the model.
    OSError: a file cannot be written.
  """
  kind, _, name = model.partition(":")
  if kind != "hf" or not name:
    raise UsageError(f"--model={model}: expected hf:OWNER/NAME")
  folder = storage.resolve(out)
  if (folder / stored.LAST_FILE).exists():
    console.print_status(f"{model} is in {folder} already")
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
  """Copies a file so that a part of it is never taken for the whole."""
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
    "out", None, "The folder, here or gs://BUCKET/FOLDER.", required=True
  )
  front.run(__doc__, lambda: fetch(model.value, out.value))


if __name__ == "__main__":
  run()
