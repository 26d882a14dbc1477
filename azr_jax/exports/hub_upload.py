"""Uploads an exported model to the Hugging Face hub."""

import contextlib
import pathlib
from collections.abc import Iterator

import huggingface_hub

# The files of a model's folder that are uploaded, and no others.
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
  """Checks that a model can be uploaded, before time is spent on it.

  Args:
    name: OWNER/NAME.

  Raises:
    ValueError: the name is none of the hub, there is no token, or the hub does
      not answer or does not know the token.
  """
  try:
    huggingface_hub.utils.validate_repo_id(name)
  except huggingface_hub.utils.HFValidationError as error:
    raise ValueError(f"--push_to={name}: expected OWNER/NAME") from error
  if "/" not in name:
    raise ValueError(f"--push_to={name}: expected OWNER/NAME")
  if not huggingface_hub.get_token():
    raise ValueError(
      f"--push_to={name}: expected a token that may write, in HF_TOKEN or by "
      "`hf auth login`"
    )
  with _refusals(name):
    huggingface_hub.HfApi().whoami()


def push(folder: pathlib.Path, name: str, private: bool, message: str) -> str:
  """Uploads the files of a folder as one commit, and returns its address.

  Args:
    folder: with an exported model.
    name: OWNER/NAME; made if missing.
    private: whether only its owner sees it, if it is made.
    message: of the commit.

  Raises:
    ValueError: the hub refuses it, or does not answer.
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
  """Raises an error of the hub or of the network as one line."""
  try:
    yield
  # Their classes depend on the version of huggingface_hub.
  except Exception as error:
    line = " ".join(str(error).split())[:200]
    raise ValueError(
      f"--push_to={name}: the hub refuses, or cannot be reached "
      f"({type(error).__name__}: {line}): expected a network, and a token that "
      "may write there"
    ) from error
