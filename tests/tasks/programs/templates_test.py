"""Prompts of a user for program tasks: their values, and hidden cases."""

import pytest

from azr_jax.config.settings import Invalid
from azr_jax.evals import template_folder
from azr_jax.systems.azr.settings import AZRSettings
from azr_jax.systems.azr.system import AZR
from azr_jax.tasks import templates
from azr_jax.tasks.programs import prompts
from azr_jax.tasks.programs.prompt_builder import PromptBuilder
from azr_jax.tasks.programs.task import InductionTask, Triplet
from azr_jax.tasks.programs.templates import FILES

TRIPLET = Triplet("def f(x):\n  return {x: 1}", "'{INPUT}'", "{'{INPUT}': 1}")
CASES = InductionTask(
  "def f(x):\n  return x", ("1", "2", "3", "4"), ("5", "6", "7", "8"), "a {b}"
)
# Uses every placeholder.
TEXTS = {
  "frame": "Ask: {TASK_INSTRUCTION}\nTell: <think>\n",
  "propose_deduction": (
    "new {{'a': {{}}}} {CODE_REFERENCES_FROM_BUFFER} "
    "without {LIST_OF_FORBIDDEN_PACKAGES} in {CPU_SECONDS} s"
  ),
  "propose_abduction": "other {CODE_REFERENCES_FROM_BUFFER}",
  "propose_induction": "{NUM_INPUTS} inputs of {SNIPPET_FROM_BUFFER}",
  "solve_deduction": "{SNIPPET} of {INPUT}. {EQUALITY_RULE}",
  "solve_abduction": "{SNIPPET} gives {OUTPUT}",
  "solve_induction": "{INPUT_OUTPUT_PAIRS} {MESSAGE} {CPU_SECONDS}",
  "reference": "[{INDEX}: {SNIPPET}, {INPUT}, {OUTPUT}]",
  "case": "({INDEX}: {INPUT} -> {OUTPUT})",
}


@pytest.fixture(name="write")
def make_write(tmp_path):
  def write(**changes):
    for name, text in (TEXTS | changes).items():
      path = tmp_path / f"{name}.txt"
      if text is None:
        path.unlink(missing_ok=True)
      else:
        path.write_text(text)
    return str(tmp_path)

  return write


def style(folder):
  read = templates.read(folder, FILES)
  return PromptBuilder("full", 0.5, 2.0, custom_templates=read)


def test_every_prompt_is_the_users(write):
  words = style(write())
  code = TRIPLET.code
  assert words.propose_triplet("deduction", [TRIPLET, TRIPLET]) == (
    f"Ask: new {{'a': {{}}}} [0: {code}, '{{INPUT}}', {{'{{INPUT}}': 1}}]\n"
    f"[1: {code}, '{{INPUT}}', {{'{{INPUT}}': 1}}] without "
    f"{', '.join(prompts.FORBIDDEN_MODULES)} in 0.5 s\nTell: <think>"
  )
  assert words.propose_triplet("abduction", [TRIPLET]).startswith("Ask: other")
  assert words.propose_induction(code, 10) == (
    f"Ask: 10 inputs of {code}\nTell: <think>"
  )
  # A value that looks like a placeholder is not filled.
  rule = prompts.equality_rule("deduction")
  assert words.solve("deduction", TRIPLET) == (
    f"Ask: {code} of '{{INPUT}}'. {rule}\nTell: <think>"
  )
  solve = words.solve("abduction", TRIPLET)
  assert solve == f"Ask: {code} gives {{'{{INPUT}}': 1}}\nTell: <think>"
  # Half of the cases are hidden.
  assert words.solve("induction", CASES) == (
    "Ask: (0: 1 -> 5)\n(1: 2 -> 6) a {b} 2\nTell: <think>"
  )


def test_references_and_cases_are_fences_without_files_for_them(write):
  words = style(write(reference=None, case=None))
  prompt = words.propose_triplet("deduction", [TRIPLET])
  assert prompts.fence("python", TRIPLET.code) in prompt
  assert prompts.fence("output", TRIPLET.output) in prompt
  assert prompts.fence("input", "2") in words.solve("induction", CASES)


def test_components_are_shown_with_any_words(write):
  components = ("def g_0(x):\n  return x",)
  prompt = style(write()).propose_triplet("deduction", [TRIPLET], components)
  assert prompts.built_on(components) in prompt


def test_files_of_types_that_are_not_played_may_be_missing(write):
  folder = write(solve_induction=None, propose_induction=None)
  two = AZRSettings(task_types=("deduction", "abduction"))
  assert template_folder.read(folder, needed=AZR.prompt_files(two))
  with pytest.raises(Invalid, match="propose_induction.txt: there is no such"):
    template_folder.read(folder, needed=AZR.prompt_files(AZRSettings()))


@pytest.mark.parametrize("states_rule", [True, False])
def test_the_rule_of_equality_is_an_option(states_rule):
  words = PromptBuilder("full", 0.5, 2.0, states_equality=states_rule)
  tasks = (("deduction", TRIPLET), ("abduction", TRIPLET), ("induction", CASES))
  for task_type, task in tasks:
    text = words.solve(task_type, task)
    assert (prompts.equality_rule(task_type) in text) is states_rule
