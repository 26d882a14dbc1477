"""Checksums of checkpoints: which damage is detected, and how it is named."""

import random
import shutil

import numpy as np
import pytest

from azr_jax.run import checksums
from azr_jax.run.checkpoint import Checkpointer

WRITTEN = "checksums_0.txt"


@pytest.fixture(scope="module", name="saved")
def make_saved(tmp_path_factory):
  """A real checkpoint. Tests must not change it."""
  folder = tmp_path_factory.mktemp("run")
  state = {"weights": np.random.default_rng(0).random((50, 40)), "step": 3}
  with Checkpointer(folder, keep=None) as checkpoints:
    checkpoints.save(3, state, {"tasks": list(range(50))}, [{"step": 3}])
  return folder / "checkpoints" / "3"


@pytest.fixture(name="copy")
def make_copy(saved, tmp_path):
  return shutil.copytree(saved, tmp_path / "3")


def names_of(folder):
  """Returns the files of a checkpoint."""
  return sorted(
    str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()
  )


def listed(path):
  """Returns the files that a checksum file lists."""
  lines = path.read_text().splitlines()[1:]
  return [line.split(" ", 2)[2] for line in lines]


def test_a_checkpoint_is_whole_as_it_was_saved(saved):
  assert checksums.find_damage(saved) == ""
  assert sorted([*listed(saved / WRITTEN), WRITTEN]) == names_of(saved)
  assert all(checksums.find_damage(saved, i, 3) == "" for i in range(3))


@pytest.mark.parametrize("seed", range(4))
def test_every_flipped_byte_is_found_in_its_file(copy, seed):
  """Ten random places in every file, including small ones."""
  draw = random.Random(seed)
  for name in names_of(copy):
    path = copy / name
    whole = path.read_bytes()
    for place in draw.sample(range(len(whole)), min(10, len(whole))):
      data = bytearray(whole)
      data[place] ^= draw.randrange(1, 256)
      path.write_bytes(data)
      assert checksums.find_damage(copy).startswith(name), (place, whole)
      path.write_bytes(whole)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.999])
def test_a_cut_or_missing_file_is_named(copy, part):
  for name in names_of(copy):
    path = copy / name
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole))])
    assert checksums.find_damage(copy).startswith(name)
    path.unlink()
    if name == WRITTEN:
      assert checksums.find_damage(copy) == ""  # Not written yet.
    else:
      assert checksums.find_damage(copy) == f"{name} is missing"
    path.write_bytes(whole)
  assert checksums.find_damage(copy) == ""


def test_one_of_the_hosts_that_share_the_files_finds_it(copy):
  for name in names_of(copy):
    if name == WRITTEN:
      continue
    path = copy / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    found = [checksums.find_damage(copy, index, 3) for index in range(3)]
    assert sorted(map(bool, found)) == [False, False, True]
    path.write_bytes(whole)


def test_the_message_has_the_sizes(copy):
  path = copy / "system" / "metadata"
  size = path.stat().st_size
  path.write_bytes(path.read_bytes()[:7])
  assert checksums.find_damage(copy) == (
    f"system/metadata has 7 bytes of {size}"
  )


def test_hosts_share_the_files_and_one_may_be_killed(copy):
  (copy / WRITTEN).unlink()
  files = names_of(copy)
  parts = []
  for index in range(3):
    checksums.write(copy, index, 3)
    parts.append(listed(copy / f"checksums_{index}.txt"))
  assert all(parts) and sorted(sum(parts, [])) == files
  assert checksums.find_damage(copy) == ""
  # The second host was killed while it wrote: its files are assumed undamaged.
  path = copy / "checksums_1.txt"
  path.rename(path.with_suffix(".partial")).write_text("half of")
  for name in files:
    whole = (copy / name).read_bytes()
    (copy / name).write_bytes(whole[:-1])
    found = checksums.find_damage(copy)
    assert bool(found) == (name not in parts[1])
    assert found.startswith(name if found else "")
    (copy / name).write_bytes(whole)
