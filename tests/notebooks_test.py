"""The notebooks run from start to end, on tiny settings, and store nothing."""

import pathlib

import nbclient
import nbformat
import pytest

FOLDER = pathlib.Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
SMALL = {
  "01_quickstart": """
STEPS, WORKDIR = 1, {run!r}
""",
  "02_tasks_and_executor": "",
  "03_training_dynamics": "RUN = {run!r}",
  "04_prompt_distributions": "PUZZLES, STEPS = 200, 30",
}
# What the first notebook trains with; one step, small enough for a test.
_SMALL_STEP = """
import configs.azr
_get_config = configs.azr.get_config
def get_config(variant):
  config = _get_config(variant)
  config.azr.batch_size = 2
  config.azr.learnability_samples = 2
  config.azr.seed_factor = 1
  config.rollout.slots = 24
  config.rollout.prompt_buckets = (128,)
  config.rollout.decode_chunk = 56
  config.learner.micro_rows = 4
  return config
configs.azr.get_config = get_config
"""


def test_all_notebooks_are_tested():
  assert NAMES == sorted(SMALL)


@pytest.mark.parametrize("name", NAMES)
def test_no_output_is_stored(name):
  notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
  nbformat.validate(notebook)
  for cell in notebook.cells:
    if cell.cell_type == "code":
      assert not cell.outputs and cell.execution_count is None


def execute(name, run):
  """Runs a notebook with the test's parameters; returns what it printed."""
  notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
  parameters = SMALL[name].format(run=str(run))
  places = [
    place
    for place, cell in enumerate(notebook.cells)
    if "parameters" in cell.metadata.get("tags", ())
  ]
  setup = "%matplotlib agg\n" + (_SMALL_STEP if name.startswith("01") else "")
  cells = [nbformat.v4.new_code_cell(setup + parameters)]
  place = places[0] + 1 if places else 0
  notebook.cells[place:place] = cells
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
  """The first notebook's run, and what it printed."""
  folder = tmp_path_factory.mktemp("notebook") / "run"
  return folder, execute("01_quickstart", folder)


def test_quickstart_trains_and_shows_proposals(run):
  folder, printed = run
  assert (folder / "metrics.jsonl").read_text().count("\n") == 1
  assert "reward" in printed and "solved" in printed


def test_tasks_and_executor(tmp_path):
  printed = execute("02_tasks_and_executor", tmp_path)
  for said in ("nondeterministic", "blocked", "timeout", "bomb", "trivial"):
    assert said in printed
  assert "next ok" in printed
  assert "(True, False, True)" in printed


def test_training_dynamics_reads_any_run(run):
  folder, _ = run
  printed = execute("03_training_dynamics", folder)
  assert "1 steps of abduction, deduction, induction" in printed
  assert "propose" in printed


def test_prompt_distributions(tmp_path):
  execute("04_prompt_distributions", tmp_path)
