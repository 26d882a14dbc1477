"""Finds the public files of questions, or downloads them.

| collection | public source | location |
| --- | --- | --- |
| `bbh` | folder `bbh` of suzgunmirac/BIG-Bench-Hard (MIT) | `DATA/bbh` |
| `symbench` | folder `dataset_gather` of yongchao98/CodeSteer-v1.0
  (Apache-2.0) | `DATA/symbench` |

Both are pinned to a commit. reasoning-gym's questions are generated and need no
files.
"""

import dataclasses
import pathlib
import shutil
import tarfile
import urllib.request
from collections.abc import Sequence

from azr_jax.run import console

_TIMEOUT_S = 60
_GITHUB = "https://codeload.github.com"


@dataclasses.dataclass(frozen=True)
class Collection:
  """A public collection.

  Attributes:
    name: name of the local folder of its files.
    repository: OWNER/NAME on GitHub.
    commit: the pinned commit.
    folder: the repository's folder with the files.
  """

  name: str
  repository: str
  commit: str
  folder: str

  @property
  def url(self) -> str:
    """URL of the repository's archive."""
    return f"{_GITHUB}/{self.repository}/tar.gz/{self.commit}"


COLLECTIONS = {
  collection.name: collection
  for collection in (
    Collection(
      "bbh",
      "suzgunmirac/BIG-Bench-Hard",
      "9ee07bd481feebf959a6b59d61ea57bdcf30964d",
      "bbh",
    ),
    Collection(
      "symbench",
      "yongchao98/CodeSteer-v1.0",
      "2a7750d85c569cdaacd0f7cf6da40c6cc2a9d058",
      "dataset_gather",
    ),
  )
}


def locate(
  collection: Collection, folders: Sequence[pathlib.Path], cache: pathlib.Path
) -> pathlib.Path:
  """Returns the folder of a collection's files, downloading it if needed.

  Args:
    collection: one of `COLLECTIONS`.
    folders: folders to search for a folder of the collection's name.
    cache: folder that is searched last, and where downloads go.

  Raises:
    ValueError: the files were not found and cannot be downloaded.
  """
  for folder in (*folders, cache):
    if (folder / collection.name).is_dir():
      return folder / collection.name
  target = cache / collection.name
  console.print_status(f"{collection.name}: downloading {collection.url}")
  try:
    _download(collection, target)
  except (OSError, tarfile.TarError, EOFError) as error:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise ValueError(
      f"{collection.name} cannot be downloaded ({reason}): expected a network, "
      f"or --data=DIR with the folder {collection.folder!r} of "
      f"github.com/{collection.repository} as DIR/{collection.name}; use "
      "--tasks= without it to build the other tasks"
    ) from None
  return target


def _download(collection: Collection, target: pathlib.Path) -> None:
  """Unpacks the collection's folder from the archive.

  `target` appears only once it is complete.

  Raises:
    OSError, tarfile.TarError: the archive cannot be read, or lacks the folder.
  """
  partial = target.with_name(f"{target.name}.partial")
  shutil.rmtree(partial, ignore_errors=True)
  partial.mkdir(parents=True)
  found = False
  with (
    urllib.request.urlopen(collection.url, timeout=_TIMEOUT_S) as response,
    tarfile.open(fileobj=response, mode="r|gz") as archive,
  ):
    for member in archive:
      # The first part of a name is the archive's top folder.
      parts = pathlib.PurePosixPath(member.name).parts[1:]
      if not member.isfile() or parts[:1] != (collection.folder,):
        continue
      if ".." in parts:
        raise OSError(f"{member.name!r} in the archive: expected no '..'")
      content = archive.extractfile(member)
      assert content is not None  # It is a file.
      path = partial.joinpath(*parts[1:])
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(content.read())
      found = True
  if not found:
    raise OSError(f"the archive has no folder {collection.folder!r}")
  partial.rename(target)
