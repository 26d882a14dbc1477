"""Uploads an exported model to the Hugging Face hub."""

import contextlib
import pathlib
from collections.abc import Iterator

import huggingface_hub

# Patterns of the files to upload.
FILES = (
  "README.md",
  "*.json",
  "*.safetensors",
  "*.model",
  "*.txt",
  "*.jinja",
  "*.gguf",
)


def check(name: str) -> None:
  """Checks that the upload can work, before time is spent on the export.

  Args:
    name: OWNER/NAME.

  Raises:
    ValueError: the name is invalid, there is no token, or the hub cannot be
      reached or rejects the token.
  """
  try:
    huggingface_hub.utils.validate_repo_id(name)
  except huggingface_hub.utils.HFValidationError as error:
    raise ValueError(f"--push_to={name}: expected OWNER/NAME") from error
  if "/" not in name:
    raise ValueError(f"--push_to={name}: expected OWNER/NAME")
  if not huggingface_hub.get_token():
    raise ValueError(
      f"--push_to={name}: expected a token with write access, in HF_TOKEN or "
      "by `hf auth login`"
    )
  with _refusals(name):
    huggingface_hub.HfApi().whoami()


def push(folder: pathlib.Path, name: str, private: bool, message: str) -> str:
  """Uploads the files of a folder as one commit; returns the commit's URL.

  Args:
    folder: the folder of an exported model.
    name: OWNER/NAME. The repository is created if it does not exist.
    private: whether a new repository is private.
    message: the commit message.

  Raises:
    ValueError: the hub refuses the upload or cannot be reached.
  """
  api = huggingface_hub.HfApi()
  with _refusals(name):
    api.create_repo(name, private=private, exist_ok=True)
    done = api.upload_folder(
      repo_id=name,
      folder_path=folder,
      allow_patterns=list(FILES),
      commit_message=message,
    )
  return done.commit_url


@contextlib.contextmanager
def _refusals(name: str) -> Iterator[None]:
  """Turns errors of the hub or the network into one-line ValueErrors."""
  try:
    yield
  # The exception classes depend on the version of huggingface_hub.
  except Exception as error:
    line = " ".join(str(error).split())[:200]
    raise ValueError(
      f"--push_to={name}: the hub refuses, or cannot be reached "
      f"({type(error).__name__}: {line}): expected a network connection and a "
      "token with write access"
    ) from error
