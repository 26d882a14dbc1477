"""Checksums of checkpoints: which damage is found, and how it is named."""

import json
import random
import shutil
import threading

import numpy as np
import pytest

from azr_jax.run import checksums
from azr_jax.run.checkpoint import Checkpointer


@pytest.fixture(scope="module", name="saved")
def make_saved(tmp_path_factory):
  """A real checkpoint, which nobody changes."""
  folder = tmp_path_factory.mktemp("run")
  state = {"weights": np.random.default_rng(0).random((50, 40)), "step": 3}
  with Checkpointer(folder, keep=None) as checkpoints:
    checkpoints.save(3, state, {"tasks": list(range(50))}, [{"step": 3}])
  return folder / "checkpoints" / "3"


@pytest.fixture(name="copy")
def make_copy(saved, tmp_path):
  return shutil.copytree(saved, tmp_path / "3")


def names_of(folder):
  """Files of a checkpoint; Orbax writes the last one when all is done."""
  names = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
  return sorted(names - {"commit_success.txt"})


def test_a_checkpoint_is_whole_as_it_was_saved(saved):
  assert checksums.find_damage(saved) == ""
  listed = (saved / checksums.FILE).read_text().splitlines()[1:]
  names = [line.split(" ", 2)[2] for line in listed]
  assert sorted([*names, checksums.FILE]) == names_of(saved)
  assert all(checksums.find_damage(saved, i, 3) == "" for i in range(3))


@pytest.mark.parametrize("seed", range(4))
def test_every_flipped_byte_is_found_in_its_file(copy, seed):
  """Ten random places, in every file, not only in the large ones."""
  draw = random.Random(seed)
  for name in names_of(copy):
    path = copy / name
    whole = path.read_bytes()
    for place in draw.sample(range(len(whole)), min(10, len(whole))):
      data = bytearray(whole)
      data[place] ^= draw.randrange(1, 256)
      path.write_bytes(data)
      # The one number that Orbax adds at the very end says when that was.
      at_the_end = whole.find(b"commit_timestamp_nsecs")
      if at_the_end < 0 or place < at_the_end - 2:
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
    if name == checksums.FILE:
      assert checksums.find_damage(copy) == ""  # An older version wrote none.
    else:
      assert checksums.find_damage(copy) == f"{name} is missing"
    path.write_bytes(whole)
  assert checksums.find_damage(copy) == ""


def test_one_of_the_hosts_that_share_the_files_finds_it(copy):
  for name in names_of(copy):
    if name == checksums.FILE:
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


def test_metadata_that_orbax_writes_late_are_waited_for(
  saved, tmp_path, monkeypatch
):
  """Its thread may be slower than the checksums of everything else."""
  whole = (saved / "_CHECKPOINT_METADATA").read_text()
  fields = json.loads(whole)
  early = {k: v for k, v in fields.items() if k.endswith("_nsecs")}
  for cut in (json.dumps(early), whole[:50], "{}"):
    folder = shutil.copytree(saved, tmp_path / str(len(cut)))
    path = folder / "_CHECKPOINT_METADATA"
    path.write_text(cut)
    late = threading.Timer(0.2, path.write_text, [whole])
    late.start()
    checksums.write(folder)
    late.join()
    assert checksums.find_damage(folder) == ""
    assert path.name in (folder / checksums.FILE).read_text()
  monkeypatch.setattr(checksums, "_LAST_FIELD_S", 0.1)
  path.write_text("{}")
  checksums.write(folder)
  path.write_text(whole)
  assert checksums.find_damage(folder) == ""
