"""Question splits made by `python -m azr_jax.data.build_questions`.

| split | questions | tasks |
| --- | --- | --- |
| `train` | training questions for GRPO | 107 |
| `sft` | questions to sample SFT conversations from | 107 |
| `seen` | held-out questions of training tasks | 107 |
| `test` | questions of held-out tasks | 37 |

The splits share no questions. `split:train` reads `questions/train.jsonl` in
the working directory, and `split:DIR/train` reads `DIR/train.jsonl`.
"""

import pathlib

from azr_jax.tasks.questions import question
from azr_jax.tasks.questions.question import Question

TRAINED_ON = ("train", "sft")
HELD_OUT = ("seen", "test")
NAMES = (*TRAINED_ON, *HELD_OUT)
FOLDER = "questions"
COMMAND = "python -m azr_jax.data.build_questions"
_SUFFIX = ".jsonl"


def path_of(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the file of a split."""
  return folder / f"{name}{_SUFFIX}"


def read(spec: str) -> list[Question]:
  """Reads the questions of a split.

  Args:
    spec: NAME or DIR/NAME, where NAME is one of `NAMES`.

  Raises:
    ValueError: the split is unknown, or its file does not exist.
  """
  folder, slash, name = spec.rpartition("/")
  if name not in NAMES:
    raise ValueError(
      f"split {name!r}: expected one of {NAMES}, as split:NAME or "
      "split:DIR/NAME"
    )
  folder = folder + slash if slash else FOLDER
  path = path_of(pathlib.Path(folder).expanduser(), name)
  if not path.is_file():
    raise ValueError(
      f"split:{spec}: expected {path}; `{COMMAND} --out={folder}` creates it"
    )
  return question.read(path)


def held_out(spec: str) -> str:
  """Returns the spec of the test split that belongs to a split.

  Args:
    spec: `split:NAME`, `split:DIR/NAME`, or the path of a split's file.

  Returns:
    A spec of the same form, or "" if `spec` is not a split.
  """
  suffix = "" if spec.startswith("split:") else _SUFFIX
  for name in NAMES:
    for before in ("split:", "/"):
      if spec.endswith(f"{before}{name}{suffix}"):
        return f"{spec[: -len(name + suffix)]}test{suffix}"
  return ""
