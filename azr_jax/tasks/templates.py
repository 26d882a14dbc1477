"""Prompts that users write, such as a paper's own: a folder, a file per prompt.

Placeholders are in braces; double a literal brace. A single line break at the
end of a file is stripped. docs/guide/prompts.md lists the files.
"""

import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from azr_jax.config import user_files
from azr_jax.config.settings import Settings, setting

_SUFFIX = ".txt"
# A doubled brace, a placeholder, or a brace that is neither.
_BRACE = re.compile(r"\{\{|\}\}|\{(\w+)\}|[{}]")


@dataclasses.dataclass(frozen=True)
class PromptFile:
  """What a file of a template folder may contain.

  Attributes:
    required: placeholders that the text must have.
    optional: placeholders that it may have.
    default: the text if the file is missing. None: the file is required.
  """

  required: tuple[str, ...]
  optional: tuple[str, ...] = ()
  default: str | None = None


# File name without its suffix -> what the file may contain.
PromptFiles: TypeAlias = Mapping[str, PromptFile]


@dataclasses.dataclass(frozen=True)
class PromptSettings(Settings):
  """Section `prompts`, of training and of everything that asks questions."""

  templates: str = setting(
    "",
    "folder of prompts that replace the built-in ones "
    "(docs/guide/prompts.md); '': none",
  )
  digest: str = setting(
    "",
    "hash of each prompt that the results depend on; set by the command",
    expert=True,
  )


@dataclasses.dataclass(frozen=True)
class Templates:
  """The prompts of a folder.

  Attributes:
    folder: the folder, for error messages.
    files: the files that the folder may have.
    texts: the texts of those it has, with valid placeholders.
    sources: the file of each prompt that the command asks with. Most prompts
      have the name of their file; a benchmark's has the benchmark's name.
  """

  folder: str
  files: PromptFiles
  texts: Mapping[str, str]
  sources: Mapping[str, str] = dataclasses.field(default_factory=dict)

  def __contains__(self, name: str) -> bool:
    return name in self.texts

  def fill(self, name: str, **values: object) -> str:
    """Returns a prompt with its placeholders replaced by values.

    Args:
      name: a key of `files`.
      **values: a value of each placeholder that the file may have.

    Raises:
      ValueError: the folder has no such file, and no default replaces it.
    """
    self.require([name])
    text = self.texts.get(name, self.files[name].default or "")

    def write(match: re.Match[str]) -> str:
      placeholder = match[1]
      return str(values[placeholder]) if placeholder else match[0][0]

    return _BRACE.sub(write, text)

  def require(self, names: Iterable[str]) -> None:
    """Checks that the folder has these prompts.

    Raises:
      ValueError: it lacks one that has no default.
    """
    for name in names:
      file = self.files[name]
      if name not in self and file.default is None:
        raise ValueError(
          f"{_path(self.folder, name)}: there is no such file; expected a "
          f"prompt with {_braced(file.required)}"
        )

  def digest_of(self, prompts: Collection[str]) -> str:
    """Returns the hashes of some prompts, as `NAME=HASH NAME=HASH`.

    Args:
      prompts: keys of `sources`. Those without a file are left out.
    """
    texts = {
      name: self.texts[file]
      for name, file in sorted(self.sources.items())
      if name in prompts and file in self
    }
    return " ".join(f"{name}={_hash(text)}" for name, text in texts.items())

  @property
  def digest(self) -> str:
    """The hashes of all prompts that the command asks with."""
    return self.digest_of(self.sources)


# The wording of prompts: the name of a built-in format, or a user's prompts.
PromptFormat: TypeAlias = str | Templates


def changed(digest: str, other: str, in_both: bool = False) -> list[str]:
  """Returns the prompts whose texts differ between two digests.

  Args:
    digest: a digest of `Templates`; "" if all prompts are built in.
    other: another one.
    in_both: whether to leave out prompts that one of the two lacks.
  """
  hashes, others = _hashes(digest), _hashes(other)
  names = sorted(
    hashes.keys() & others.keys() if in_both else hashes.keys() | others.keys()
  )
  return [name for name in names if hashes.get(name) != others.get(name)]


def joined(digest: str, other: str) -> str:
  """Returns a digest of the prompts of two."""
  hashes = _hashes(digest) | _hashes(other)
  return " ".join(f"{name}={hashes[name]}" for name in sorted(hashes))


def _hashes(digest: str) -> dict[str, str]:
  pairs = (pair.rpartition("=") for pair in digest.split())
  return {name: text_hash for name, _, text_hash in pairs}


def _hash(text: str) -> str:
  return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def present(folder: str) -> list[str]:
  """Returns the names of a folder's prompts, without their suffix."""
  found = pathlib.Path(folder).expanduser().glob(f"*{_SUFFIX}")
  return sorted(path.name.removesuffix(_SUFFIX) for path in found)


def read(folder: str, files: PromptFiles) -> Templates:
  """Reads and checks all prompts in a folder.

  Args:
    folder: the folder. Files without the suffix `.txt` are ignored.
    files: the files that it may have.

  Raises:
    ValueError: the folder or its prompts are missing, a file has another name,
      is not text, or has wrong placeholders.
  """
  names = present(folder)
  if not names:
    raise ValueError(
      f"{folder}: expected a folder with files such as "
      f"{next(iter(files))}{_SUFFIX}"
    )
  texts = {}
  for name in names:
    path = _path(folder, name)
    if name not in files:
      known = ", ".join(f"{one}{_SUFFIX}" for one in files)
      raise ValueError(
        f"{path}: this command uses no such prompt; expected only {known}"
      )
    with user_files.reading(path, "a prompt as UTF-8 text"):
      text = path.read_bytes().decode(user_files.ENCODING)
    text = text.replace("\r\n", "\n")
    _check(path, files[name], text)
    texts[name] = text.removesuffix("\n")
  return Templates(folder, files, texts, dict(zip(texts, texts, strict=True)))


def _path(folder: str, name: str) -> pathlib.Path:
  return pathlib.Path(folder).expanduser() / f"{name}{_SUFFIX}"


def _braced(names: Sequence[str]) -> str:
  return " and ".join(f"{{{name}}}" for name in names)


def _check(path: pathlib.Path, file: PromptFile, text: str) -> None:
  """Checks that a text has its placeholders and no others.

  Raises:
    ValueError: a placeholder is missing or unknown, or a brace is not doubled.
  """
  known = (*file.required, *file.optional)
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
  missing = [name for name in file.required if name not in found]
  if missing:
    raise ValueError(f"{path}: expected {_braced(missing)} in it")
