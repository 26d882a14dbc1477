"""Models in an object store, simulated by a local folder."""

import shutil

import pytest

from azr_jax import fetch
from azr_jax.models import load, stored

MODEL = load.EMBEDDED["countdown-tiny"]


@pytest.fixture(name="hub")
def make_hub(monkeypatch):
  """Makes a hub with one model that counts downloads."""
  fetched = []
  extra = ["README.md", "pytorch_model.bin"]

  def download(name, file, local_dir):
    assert name == "owner/name"
    fetched.append(file)
    return shutil.copy(MODEL / file, local_dir)

  hub = load.huggingface_hub
  names = [path.name for path in MODEL.iterdir() if path.is_file()]
  monkeypatch.setattr(hub, "list_repo_files", lambda name: [*names, *extra])
  monkeypatch.setattr(hub, "hf_hub_download", download)
  return fetched


@pytest.mark.parametrize("is_store", [True, False])
def test_a_model_is_fetched_once_and_read_by_every_host(
  hub, tmp_path, is_store
):
  folder = tmp_path / "bucket" / "name"
  out = f"file://{folder}" if is_store else str(folder)
  fetch.fetch("hf:owner/name", out)
  assert hub[-1] == stored.LAST_FILE and len(hub) == len({*hub}) >= 3
  assert not {"README.md", "pytorch_model.bin"} & {*hub}
  assert {path.name for path in folder.iterdir()} == {*hub}
  # A second machine, or a second run, downloads nothing from the hub.
  fetch.fetch("hf:owner/name", out)
  assert len(hub) == len({*hub})
  for host in "ab":
    cache = tmp_path / host
    model = load.resolve(f"file://{folder}", str(cache))
    assert model.config == load.from_folder(MODEL).config
    assert model.tokenizer.encode("1 + 2") == load.from_folder(
      MODEL
    ).tokenizer.encode("1 + 2")
    assert any(cache.rglob("*.safetensors"))


def test_an_interrupted_fetch_goes_on(hub, tmp_path, monkeypatch):
  put = fetch._put
  calls = []

  def fail_at_second(path, target):
    calls.append(target.name)
    if len(calls) == 2:
      raise OSError("no room")
    put(path, target)

  monkeypatch.setattr(fetch, "_put", fail_at_second)
  url = f"file://{tmp_path}/name"
  with pytest.raises(OSError, match="no room"):
    fetch.fetch("hf:owner/name", url)
  # An incomplete upload is not a model yet.
  with pytest.raises(
    ValueError, match="expected a model's folder, with config"
  ):
    load.resolve(url, str(tmp_path / "cache"))
  fetch.fetch("hf:owner/name", url)
  assert hub.count(calls[0]) == 1 and hub.count(calls[1]) == 2
  load.resolve(url, str(tmp_path / "cache"))


def test_a_copy_is_made_once_and_again_when_the_store_changes(
  tmp_path, monkeypatch
):
  store = tmp_path / "store"
  store.mkdir()
  (store / "config.json").write_text("{}")
  (store / "weights").write_text("old")
  (store / "folder").mkdir()
  copied = []
  copy = stored._copy
  monkeypatch.setattr(
    stored, "_copy", lambda path, to: (copied.append(to.name), copy(path, to))
  )
  url, cache = f"file://{store}", tmp_path / "cache"
  here = stored.copy_here(url, cache)
  assert (here / "weights").read_text() == "old" and len(copied) == 2
  assert stored.copy_here(url, cache) == here and len(copied) == 2
  (store / "weights").write_text("newer")
  assert stored.copy_here(url, cache) == here and len(copied) == 4
  assert (here / "weights").read_text() == "newer"
  # No temporary files are left behind.
  assert [path.name for path in cache.iterdir()] == [here.name]


def test_the_hubs_errors_say_what_is_expected(tmp_path, monkeypatch):
  def refuse(name):
    raise OSError("401 gated")

  monkeypatch.setattr(load.huggingface_hub, "list_repo_files", refuse)
  with pytest.raises(ValueError, match="where it is gated, HF_TOKEN"):
    fetch.fetch("hf:owner/name", str(tmp_path / "model"))
