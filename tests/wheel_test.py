"""The wheel: what it holds, and that it trains where there is no clone."""

import json
import os
import pathlib
import re
import subprocess
import sys
import venv
import zipfile

import pytest
import training
import yaml

import azr_jax

# A config file of a user, in a folder that has the name of ours.
USERS = """
import ml_collections
def get_config(variant=""):
  raise RuntimeError("the user's own configs/mine.py")
"""


@pytest.fixture(name="wheel", scope="session")
def build_wheel(tmp_path_factory):
  """The wheel of this repository, of a copy of the files that git has."""
  folder = tmp_path_factory.mktemp("wheel")
  archive = subprocess.run(
    ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
    cwd=training.ROOT,
    capture_output=True,
    check=True,
  ).stdout
  # A build writes into the folder that it is made from.
  packed = subprocess.run(
    ["tar", "-C", str(training.ROOT), "--null", "-T", "-", "-cf", "-"]
    + ["--ignore-failed-read"],
    input=archive,
    capture_output=True,
    check=True,
  ).stdout
  source = folder / "source"
  source.mkdir()
  subprocess.run(
    ["tar", "-C", str(source), "-xf", "-"], input=packed, check=True
  )
  subprocess.run(
    [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    + ["--wheel-dir", str(folder), str(source)],
    check=True,
    capture_output=True,
  )
  (path,) = folder.glob("*.whl")
  return path


@pytest.mark.slow
def test_the_wheel_has_one_package_with_all_its_files(wheel):
  names = zipfile.ZipFile(wheel).namelist()
  tops = {name.partition("/")[0] for name in names}
  assert tops == {"azr_jax", f"azr_jax-{azr_jax.__version__}.dist-info"}
  package = training.ROOT / "azr_jax"
  tracked = subprocess.run(
    ["git", "ls-files", "azr_jax", "configs"],
    cwd=training.ROOT,
    capture_output=True,
    text=True,
    check=True,
  ).stdout.split()
  want = {re.sub("^configs/", "azr_jax/configs/", name) for name in tracked}
  assert {name for name in names if "dist-info" not in name} == want - {
    "azr_jax/configs"
  }
  assert (package / "configs").is_symlink()


@pytest.mark.slow
def test_the_wheel_trains_where_there_is_no_clone(wheel, tmp_path):
  environment = tmp_path / "environment"
  venv.create(environment, with_pip=False)
  # The dependencies come from this environment; the package does not.
  site = next((environment / "lib").glob("python*/site-packages"))
  (pathlib.Path(site) / "dependencies.pth").write_text(
    os.pathsep.join(path for path in sys.path if "site-packages" in path) + "\n"
  )
  python = environment / "bin" / "python"
  subprocess.run(
    [sys.executable, "-m", "pip", "--python", str(python), "install"]
    + ["--quiet", "--no-deps", "--force-reinstall", str(wheel)],
    check=True,
    capture_output=True,
  )
  folder = tmp_path / "elsewhere"
  (folder / "configs").mkdir(parents=True)
  (folder / "configs" / "__init__.py").write_text("")
  (folder / "configs" / "mine.py").write_text(USERS)
  kept = {
    key: value
    for key, value in training.environment().items()
    if key not in ("PYTHONPATH", "VIRTUAL_ENV")
  }

  def run(name, *arguments):
    return subprocess.run(
      [str(environment / "bin" / name), *arguments],
      cwd=folder,
      env=kept,
      capture_output=True,
      text=True,
      check=False,
    )

  where = run("python", "-c", "import azr_jax; print(azr_jax.__file__)")
  assert where.stdout.strip().startswith(str(environment))
  done = run(
    "azr-train",
    "--config=configs/azr.py:tiny",
    f"--workdir={tmp_path / 'run'}",
    "--config.train.steps=2",
    "--config.azr.batch_size=4",
    "--config.azr.seed_factor=1",
  )
  assert done.returncode == 0, done.stderr[-3000:]
  lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
  assert [json.loads(line)["step"] for line in lines] == [1, 2]
  # The user's own configs are the user's own.
  mine = run("azr-train", "--config=configs/mine.py", "--workdir=/dev/null/x")
  assert "the user's own configs/mine.py" in mine.stderr
  own = run("python", "-c", "import configs; print(configs.__file__)")
  assert own.stdout.strip() == str(folder / "configs" / "__init__.py")
  out = tmp_path / "model"
  exported = run("azr-export", f"--workdir={tmp_path / 'run'}", f"--out={out}")
  assert exported.returncode == 0, exported.stderr[-3000:]
  assert "| steps | 2 |" in (out / "README.md").read_text()


def test_version_citation_and_changelog_agree():
  citation = yaml.safe_load((training.ROOT / "CITATION.cff").read_text())
  assert citation["version"] == azr_jax.__version__
  assert citation["cff-version"] == "1.2.0" and citation["authors"]
  papers = (training.ROOT / "docs" / "papers.md").read_text()
  for reference in citation["references"]:
    assert reference["title"] in papers and reference["url"] in papers
  changes = (training.ROOT / "CHANGELOG.md").read_text()
  heads = re.findall(r"^## (.+)$", changes, re.MULTILINE)
  is_open = "dev" in azr_jax.__version__
  assert heads[0] == ("Unreleased" if is_open else azr_jax.__version__)
