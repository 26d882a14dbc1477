"""Notebooks run to their end on small settings, and store no output."""

import pathlib

import nbclient
import nbformat
import pytest
import training

FOLDER = pathlib.Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
# Notebook -> the code that replaces its parameters.
PARAMETERS = {
  "01_quickstart": "STEPS, WORKDIR = 1, {folder!r}",
  "02_tasks_and_executor": "",
  "03_training_dynamics": "RUN = {folder!r}",
  "04_prompt_distributions": "PUZZLES, STEPS = 200, 30",
}
# The first notebook trains as the shared run does, so that it finds programs in
# the compilation cache.
_SMALL_CONFIG = f"""
from azr_jax.configs import azr
_get_config = azr.get_config
def get_config(variant):
  config = _get_config(variant)
  config.update_from_flattened_dict({training.AZR})
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


def execute(name, folder):
  """Runs a notebook with the test's parameters and returns its output."""
  notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
  parameters = PARAMETERS[name].format(folder=str(folder))
  tagged = [
    index
    for index, cell in enumerate(notebook.cells)
    if "parameters" in cell.metadata.get("tags", ())
  ]
  setup = "%matplotlib agg\n"
  if name.startswith("01"):
    setup += _SMALL_CONFIG
  cells = [nbformat.v4.new_code_cell(setup + parameters)]
  index = tagged[0] + 1 if tagged else 0
  notebook.cells[index:index] = cells
  nbclient.NotebookClient(
    notebook, timeout=300, kernel_name="python3", resources={}
  ).execute(env=training.environment())
  return "".join(
    output.get("text", "")
    for cell in notebook.cells
    if cell.cell_type == "code"
    for output in cell.outputs
    if output.get("name") == "stdout"
  )


def test_quickstart_trains_and_shows_proposals(tmp_path):
  printed = execute("01_quickstart", tmp_path / "run")
  assert len(training.rows_of(tmp_path / "run")) == 1
  assert "reward" in printed and "solved" in printed


def test_tasks_and_executor(tmp_path):
  printed = execute("02_tasks_and_executor", tmp_path)
  for word in ("nondeterministic", "blocked", "timeout", "bomb", "trivial"):
    assert word in printed
  assert "next ok" in printed
  assert "['CORRECT', 'INCORRECT', 'CORRECT']" in printed


def test_training_dynamics_reads_any_run(azr_run):
  printed = execute("03_training_dynamics", azr_run)
  assert "5 steps of abduction, deduction, induction" in printed
  assert "sample " in printed


def test_prompt_distributions(tmp_path):
  execute("04_prompt_distributions", tmp_path)
