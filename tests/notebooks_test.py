"""Notebooks run to their end with small settings, and store their output."""

import base64
import pathlib
import re
import struct
from typing import Any

import nbclient
import nbformat
import pytest
import training

FOLDER = pathlib.Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
# Notebook -> the code that replaces its parameters.
PARAMETERS = {
  "01_quickstart": "STEPS, ITEMS, WORKDIR = 1, 6, {folder!r}",
  "02_your_own_reward": "MODEL = 'embedded:orz-tiny'\nSTEPS, HELD_OUT = 1, 8\n"
  "WORKDIR = {folder!r}\nOPTIONS = dict(prompts=4, group_size=4)",
  "03_tasks_and_executor": "",
  "04_training_dynamics": "RUN = {folder!r}",
  "05_prompt_distributions": "PUZZLES, STEPS = 200, 30",
  "06_environment_with_tools": "STEPS, WORKDIR = 1, {folder!r}",
  "07_grpo_with_four_verbs": "STEPS, PROMPTS, GROUP = 5, 2, 4",
}
# Notebooks are read on the web, where large ones are not shown.
MAX_BYTES = 700_000
# Maximum width of a figure in pixels: twice a notebook's column.
MAX_WIDTH = 2000
# The first notebook trains like the shared run, so that its programs are in the
# compilation cache.
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
def test_outputs_are_stored_of_one_execution(name):
  path = FOLDER / f"{name}.ipynb"
  assert path.stat().st_size < MAX_BYTES
  notebook: Any = nbformat.read(path, as_version=4)
  nbformat.validate(notebook)
  cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
  counts = [cell.execution_count for cell in cells]
  assert counts == list(range(1, len(cells) + 1))
  outputs = [output for cell in cells for output in cell.outputs]
  assert outputs
  for output in outputs:
    assert output.output_type != "error"
    shown = output.get("text", "") or output["data"].get("text/plain", "")
    assert not any(at in shown for at in ("/root", "/home", "site-packages"))
    if "image/png" in output.get("data", {}):
      png = base64.b64decode(output["data"]["image/png"])
      assert struct.unpack(">I", png[16:20])[0] <= MAX_WIDTH


@pytest.mark.parametrize("name", NAMES)
def test_it_opens_on_colab_and_kaggle(name):
  notebook: Any = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
  address = re.findall(r'url="(.+)"', (training.ROOT / "setup.py").read_text())
  (home,) = address
  file = f"{home}/blob/main/notebooks/{name}.ipynb"
  hub = file.replace(
    "https://github.com", "https://colab.research.google.com/github"
  )
  assert f"]({hub})" in notebook.cells[0].source
  assert f"welcome?src={file})" in notebook.cells[0].source
  assert f"@ git+{home}" in notebook.cells[1].source


def execute(name, folder):
  """Runs a notebook with the test's parameters and returns its output."""
  notebook: Any = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
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


@pytest.mark.slow
def test_quickstart_trains_and_shows_proposals(tmp_path):
  printed = execute("01_quickstart", tmp_path / "run")
  assert len(training.rows_of(tmp_path / "run")) == 1
  assert "reward" in printed and "solved" in printed
  assert "programs_heldout" in printed


@pytest.mark.slow
def test_a_reward_of_one_s_own(tmp_path):
  printed = execute("02_your_own_reward", tmp_path / "run")
  assert len(training.rows_of(tmp_path / "run")) == 1
  assert "before: " in printed and "of 8 held-out sums" in printed


def test_tasks_and_executor(tmp_path):
  printed = execute("03_tasks_and_executor", tmp_path)
  for word in ("nondeterministic", "blocked", "timeout", "bomb", "trivial"):
    assert word in printed
  assert "next ok" in printed
  assert "['CORRECT', 'INCORRECT', 'CORRECT']" in printed


@pytest.mark.slow
def test_training_dynamics_reads_any_run(azr_run):
  printed = execute("04_training_dynamics", azr_run)
  assert "5 steps of abduction, deduction, induction" in printed
  assert "sample " in printed


def test_prompt_distributions(tmp_path):
  execute("05_prompt_distributions", tmp_path)


@pytest.mark.slow
def test_an_environment_with_tools(tmp_path):
  printed = execute("06_environment_with_tools", tmp_path)
  assert "tool: Error: KeyError: 'coffee'" in printed
  assert "reward 1.0 {'calls': 2, 'tool_errors': 1}" in printed
  assert len(training.rows_of(tmp_path / "run")) == 2  # The last has scores.


@pytest.mark.slow
def test_a_loop_of_four_verbs(tmp_path):
  printed = execute("07_grpo_with_four_verbs", tmp_path)
  assert "step  4: " in printed and "% of 8 answers are boxed" in printed
  assert printed.count("</think>") >= 3
