"""Custom prompt templates, e.g. with the wording of the paper's figures.

A folder has one file per prompt. Placeholders are in braces, as in the figures;
double a literal brace.

| file | figure | placeholders ([optional]) |
| --- | --- | --- |
| `frame.txt` | 33 | TASK_INSTRUCTION |
| `propose_abduction.txt` | 34 | CODE_REFERENCES_FROM_BUFFER, [F] |
| `propose_deduction.txt` | 35 | CODE_REFERENCES_FROM_BUFFER, [F] |
| `propose_induction.txt` | 36 | SNIPPET_FROM_BUFFER, [NUM_INPUTS] |
| `solve_abduction.txt` | 37 | SNIPPET, OUTPUT, [EQUALITY_RULE] |
| `solve_deduction.txt` | 38 | SNIPPET, INPUT, [EQUALITY_RULE] |
| `solve_induction.txt` | 39 | INPUT_OUTPUT_PAIRS, MESSAGE, [EQUALITY_RULE, F] |
| `propose_error_deduction.txt` | (D.1) | CODE_REFERENCES_FROM_BUFFER, [F] |
| `solve_error_deduction.txt` | (D.1) | SNIPPET, INPUT |
| `reference.txt` | | SNIPPET, INPUT, OUTPUT, [INDEX]: one reference |
| `case.txt` | | INPUT, OUTPUT, [INDEX]: one pair of figure 39 |

F stands for LIST_OF_FORBIDDEN_PACKAGES and CPU_SECONDS. The figures do not show
the layout of references and cases; without the last two files, they are written
as labelled fences. Files of unused task types may be missing.
"""

import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Mapping, Sequence

from azr_jax.config import user_files
from azr_jax.tasks.programs.task import PROPOSE, SOLVE

FRAME, REFERENCE, CASE = "frame", "reference", "case"
_RULES = ("LIST_OF_FORBIDDEN_PACKAGES", "CPU_SECONDS")
_TRIPLET = ("CODE_REFERENCES_FROM_BUFFER",)
# Template name -> required and optional placeholders.
PLACEHOLDERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
  FRAME: (("TASK_INSTRUCTION",), ()),
  "propose_abduction": (_TRIPLET, _RULES),
  "propose_deduction": (_TRIPLET, _RULES),
  "propose_induction": (("SNIPPET_FROM_BUFFER",), ("NUM_INPUTS",)),
  "solve_abduction": (("SNIPPET", "OUTPUT"), ("EQUALITY_RULE",)),
  "solve_deduction": (("SNIPPET", "INPUT"), ("EQUALITY_RULE",)),
  "solve_induction": (
    ("INPUT_OUTPUT_PAIRS", "MESSAGE"),
    ("EQUALITY_RULE", *_RULES),
  ),
  "propose_error_deduction": (_TRIPLET, _RULES),
  "solve_error_deduction": (("SNIPPET", "INPUT"), ()),
  REFERENCE: (("SNIPPET", "INPUT", "OUTPUT"), ("INDEX",)),
  CASE: (("INPUT", "OUTPUT"), ("INDEX",)),
}
_OPTIONAL = (REFERENCE, CASE)
_DEFAULTS = {
  REFERENCE: (
    "```python\n{SNIPPET}\n```\n```input\n{INPUT}\n```\n"
    "```output\n{OUTPUT}\n```"
  ),
  CASE: "```input\n{INPUT}\n```\n```output\n{OUTPUT}\n```",
}
# A doubled brace, a placeholder, or a brace that is neither.
_BRACE = re.compile(r"\{\{|\}\}|\{(\w+)\}|[{}]")


@dataclasses.dataclass(frozen=True)
class Templates:
  """The templates of a folder.

  Attributes:
    texts: key of `PLACEHOLDERS` -> text with valid placeholders.
  """

  texts: Mapping[str, str]

  def fill(self, name: str, **values: object) -> str:
    """Replaces a template's placeholders by values."""

    def write(match: re.Match[str]) -> str:
      placeholder = match[1]
      return str(values[placeholder]) if placeholder else match[0][0]

    return _BRACE.sub(write, self.texts[name])

  @property
  def digest(self) -> str:
    """A hash of all templates."""
    joined = repr(sorted(self.texts.items())).encode()
    return hashlib.blake2b(joined, digest_size=8).hexdigest()


def read(folder: str, task_types: Sequence[str]) -> Templates:
  """Reads the templates that a run needs.

  A single line break at the end of a file is stripped.

  Args:
    folder: the folder with the files.
    task_types: the task types of the run.

  Raises:
    ValueError: a file is missing, is not text, or has wrong placeholders.
  """
  needed = [
    FRAME,
    *(f"{role}_{name}" for role in (PROPOSE, SOLVE) for name in task_types),
  ]
  texts = {}
  for name in (*needed, *_OPTIONAL):
    path = pathlib.Path(folder).expanduser() / f"{name}.txt"
    if path.is_file():
      with user_files.reading(path, "a prompt as UTF-8 text"):
        text = path.read_bytes().decode(user_files.ENCODING)
        text = text.replace("\r\n", "\n")
      _check(path, name, text)
      texts[name] = text.removesuffix("\n")
    elif name in _OPTIONAL:
      texts[name] = _DEFAULTS[name]
    else:
      raise ValueError(
        f"{path}: there is no such file; expected a prompt with "
        f"{_braced(PLACEHOLDERS[name][0])}"
      )
  return Templates(texts)


def _braced(names: Sequence[str]) -> str:
  return " and ".join(f"{{{name}}}" for name in names)


def _check(path: pathlib.Path, name: str, text: str) -> None:
  """Checks that a template has its placeholders and no others.

  Raises:
    ValueError: a placeholder is missing or unknown, or a brace is not doubled.
  """
  required, allowed = PLACEHOLDERS[name]
  known = (*required, *allowed)
  found = set()
  for match in _BRACE.finditer(text):
    line = text.count("\n", 0, match.start()) + 1
    if match[1] and match[1] not in known:
      raise ValueError(
        f"{path}: line {line} has {match[0]}: expected one of "
        f"{_braced(known)}, or doubled braces for the text itself"
      )
    if len(match[0]) == 1:
      raise ValueError(
        f"{path}: line {line} has a single {match[0]!r}: expected it doubled, "
        f"or one of {_braced(known)}"
      )
    found.add(match[1])
  missing = [name for name in required if name not in found]
  if missing:
    raise ValueError(f"{path}: expected {_braced(missing)} in it")
