"""The files of questions that `python -m azr_jax.data.build_questions` makes.

| split | questions | of tasks |
| --- | --- | --- |
| `train` | those that GRPO trains on | 107 |
| `sft` | those that conversations for SFT are sampled from | 107 |
| `seen` | held-out questions of the tasks that are trained on | 107 |
| `test` | questions of the tasks that are never trained on | 37 |

No question is in two files. A spec names one: `split:train` is `train.jsonl` in
the folder `questions` of the working directory, and `split:DIR/train` is the
one in DIR.
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
    spec: NAME or DIR/NAME, with a name of `NAMES`.

  Raises:
    ValueError: the split is unknown, or its file was not made.
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
      f"split:{spec}: there is no {path}; `{COMMAND} --out={folder}` makes it"
    )
  return question.read(path)


def held_out(spec: str) -> str:
  """Returns the spec of the test split that belongs to one that is trained on.

  Args:
    spec: `split:NAME`, `split:DIR/NAME`, or the path of a split's file.

  Returns:
    A spec of the same kind; "" if the spec names no split.
  """
  suffix = "" if spec.startswith("split:") else _SUFFIX
  for name in NAMES:
    for before in ("split:", "/"):
      if spec.endswith(f"{before}{name}{suffix}"):
        return f"{spec[: -len(name + suffix)]}test{suffix}"
  return ""
