"""Builds the question files of R1-CI's 144 tasks (R1-CI, sections 2 and 4).

  python -m azr_jax.data.build_questions --out=questions [--data=DIR]

Writes train.jsonl, sft.jsonl, seen.jsonl and test.jsonl, which
azr_jax/tasks/questions/splits.py describes, and manifest.json with counts by
task and the SHA-256 of each file. `split:train` and so on read these files.

DIR contains the folders `bbh` (27 files of BIG-Bench Hard) and `symbench`
(SymBench: `dataset_gather` of CodeSteer-v1.0, or a JSON lines file per data
set). Missing files are downloaded. `--tasks=gym,bbh/snarks` builds only these
tasks, given by names or prefixes. `--held_out=bbh` makes all tasks of a
collection test tasks, and 107 of the others training tasks (figure 13). Repeat
the command to resume an interrupted build.
"""

import dataclasses
import os
import pathlib
import sys

from azr_jax.cli import errors
from azr_jax.config import settings as settings_lib
from azr_jax.lab.data import question_splits
from azr_jax.lab.data.question_splits import SplitSettings
from azr_jax.tasks.questions import question, splits

_HASH_SEED = "PYTHONHASHSEED"


def _fix_hash_seed() -> None:
  """Restarts this command with a fixed hash seed.

  Some reasoning-gym datasets iterate over Python sets of strings, so without it
  their questions would differ from one process to the next.
  """
  if os.environ.get(_HASH_SEED) != "0":
    environment = os.environ | {_HASH_SEED: "0"}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def main() -> None:
  """Reads the flags, builds the files and prints their counts."""
  parser = errors.Parser(__doc__, "azr_jax.data.build_questions")
  parser.add_argument("--out", type=pathlib.Path, required=True)
  parser.add_argument("--data", type=pathlib.Path)
  parser.add_argument("--tasks", default=",".join(question_splits.COLLECTIONS))
  parser.add_argument("--held_out", default="")
  for described in settings_lib.describe(SplitSettings()):
    parser.add_argument(
      f"--{described.key}",
      type=int,
      default=described.default,
      help=f"{described.doc} (default: {described.default})",
    )
  flags = parser.parse_args()
  names = [field.name for field in dataclasses.fields(SplitSettings)]
  settings = SplitSettings(**{name: getattr(flags, name) for name in names})
  out = flags.out.expanduser()
  if flags.data is not None and not flags.data.expanduser().is_dir():
    raise errors.UsageError(f"--data={flags.data}: expected an existing folder")
  made = question_splits.build(
    settings,
    out,
    tuple(filter(None, flags.tasks.split(","))),
    flags.data and flags.data.expanduser(),
    flags.held_out,
  )
  print(question_splits.table(made))
  read = {name: question.read(splits.path_of(out, name)) for name in made.files}
  for facts in made.files.values():
    print(
      f"{out / facts['path']}: {facts['questions']} questions, sha256 "
      f"{facts['sha256']}"
    )
  print(
    f"{question_splits.overlap(read)} questions in two places after "
    f"normalization; {made.seconds / 60:.1f} minutes"
  )
  if made.missing:
    print(f"missing from the 144 tasks: {question_splits.missing(made)}")


if __name__ == "__main__":
  _fix_hash_seed()
  errors.guard(main)
