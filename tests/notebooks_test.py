"""Notebooks run to their end on small settings, and store no output."""

import pathlib

import nbclient
import nbformat
import pytest

FOLDER = pathlib.Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
# Notebook -> the code that replaces its parameters.
PARAMETERS = {
  "01_quickstart": "STEPS, WORKDIR = 1, {run!r}",
  "02_tasks_and_executor": "",
  "03_training_dynamics": "RUN = {run!r}",
  "04_prompt_distributions": "PUZZLES, STEPS = 200, 30",
}
# The first notebook trains with this config. It is that of `train_test.py`, so
# that both find the same programs in the compilation cache.
_SMALL_CONFIG = """
from azr_jax.configs import azr
_get_config = azr.get_config
def get_config(variant):
  config = _get_config(variant)
  config.azr.batch_size = 2
  config.azr.learnability_samples = 2
  config.azr.seed_factor = 1
  config.azr.seed_rounds = 2
  config.rollout.slots = 16
  return config
azr.get_config = get_config
"""


def test_all_notebooks_are_tested():
  assert NAMES == sorted(PARAMETERS)


@pytest.mark.parametrize("name", NAMES)
def test_no_output_is_stored(name):
  notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
  nbformat.validate(notebook)
  for cell in notebook.cells:
    if cell.cell_type == "code":
      assert not cell.outputs and cell.execution_count is None


def execute(name, run):
  """Runs a notebook with the test's parameters and returns its output."""
  notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
  parameters = PARAMETERS[name].format(run=str(run))
  tagged = [
    index
    for index, cell in enumerate(notebook.cells)
    if "parameters" in cell.metadata.get("tags", ())
  ]
  setup = "%matplotlib agg\n" + (_SMALL_CONFIG if name.startswith("01") else "")
  cells = [nbformat.v4.new_code_cell(setup + parameters)]
  index = tagged[0] + 1 if tagged else 0
  notebook.cells[index:index] = cells
  nbclient.NotebookClient(
    notebook, timeout=300, kernel_name="python3", resources={}
  ).execute()
  return "".join(
    output.get("text", "")
    for cell in notebook.cells
    if cell.cell_type == "code"
    for output in cell.outputs
    if output.get("name") == "stdout"
  )


@pytest.fixture(name="run", scope="module")
def train_one(tmp_path_factory):
  """Runs the first notebook; returns its run folder and its output."""
  folder = tmp_path_factory.mktemp("notebook") / "run"
  return folder, execute("01_quickstart", folder)


def test_quickstart_trains_and_shows_proposals(run):
  folder, printed = run
  assert (folder / "metrics.jsonl").read_text().count("\n") == 1
  assert "reward" in printed and "solved" in printed


def test_tasks_and_executor(tmp_path):
  printed = execute("02_tasks_and_executor", tmp_path)
  for word in ("nondeterministic", "blocked", "timeout", "bomb", "trivial"):
    assert word in printed
  assert "next ok" in printed
  assert "(True, False, True)" in printed


def test_training_dynamics_reads_any_run(run):
  folder, _ = run
  printed = execute("03_training_dynamics", folder)
  assert "1 steps of abduction, deduction, induction" in printed
  assert "propose" in printed


def test_prompt_distributions(tmp_path):
  execute("04_prompt_distributions", tmp_path)
