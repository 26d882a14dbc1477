"""Custom templates: filling and checking placeholders, and hidden cases."""

import codecs

import pytest

from azr_jax.config.settings import Invalid, build
from azr_jax.systems.azr.settings import AZRSettings
from azr_jax.tasks.programs import prompts, templates
from azr_jax.tasks.programs.prompt_builder import PromptBuilder
from azr_jax.tasks.programs.task import TASK_TYPES, InductionTask, Triplet

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
  read = templates.read(folder, TASK_TYPES)
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


@pytest.mark.parametrize(
  "changes, error",
  [
    ({"frame": None}, r"frame.txt: there is no such file.*{TASK_INSTRUCTION}"),
    ({"solve_deduction": None}, "solve_deduction.txt: there is no such file"),
    (
      {"solve_deduction": "a\n{SNIPET} {INPUT}"},
      r"line 2 has {SNIPET}: expected one of {SNIPPET} and {INPUT}",
    ),
    ({"solve_deduction": "{SNIPPET}"}, r"expected {INPUT} in it"),
    # A solver's prompt must not show the answer.
    (
      {"solve_abduction": "{SNIPPET} {OUTPUT} {INPUT}"},
      "line 1 has {INPUT}: expected one of",
    ),
    (
      {"solve_deduction": "{SNIPPET} {INPUT}\n{'age': 20}"},
      "line 2 has a single '{': expected it doubled",
    ),
    ({"reference": "{SNIPPET}"}, r"expected {INPUT} and {OUTPUT} in it"),
  ],
)
def test_a_wrong_file_is_one_line_before_anything_runs(write, changes, error):
  folder = write(**changes)
  with pytest.raises(Invalid, match=error) as raised:
    build(AZRSettings, {"prompt_templates": folder})
  assert "\n" not in str(raised.value)
  assert "prompt_templates=" in str(raised.value)


def test_files_of_types_that_are_not_played_may_be_missing(write):
  folder = write(solve_induction=None, propose_induction=None)
  build(
    AZRSettings,
    {"prompt_templates": folder, "task_types": ("deduction", "abduction")},
  )
  with pytest.raises(Invalid, match="'full' with prompt_templates"):
    build(AZRSettings, {"prompt_templates": folder, "prompt_format": "compact"})


def test_a_file_that_is_no_text_is_named(tmp_path, write):
  write()
  (tmp_path / "frame.txt").write_bytes(b"\xff\xfe")
  with pytest.raises(ValueError, match="frame.txt: expected a prompt as UTF-8"):
    templates.read(str(tmp_path), TASK_TYPES)


def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path, write):
  plain = templates.read(write(), TASK_TYPES)
  for path in tmp_path.iterdir():
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
  assert templates.read(str(tmp_path), TASK_TYPES) == plain


def test_every_placeholder_of_the_table_is_documented():
  for name, (required, allowed) in templates.PLACEHOLDERS.items():
    assert f"`{name}.txt`" in templates.__doc__
    for placeholder in (*required, *allowed):
      assert placeholder in templates.__doc__


@pytest.mark.parametrize("states_rule", [True, False])
def test_the_rule_of_equality_is_an_option(states_rule):
  words = PromptBuilder("full", 0.5, 2.0, states_equality=states_rule)
  tasks = (("deduction", TRIPLET), ("abduction", TRIPLET), ("induction", CASES))
  for task_type, task in tasks:
    text = words.solve(task_type, task)
    assert (prompts.equality_rule(task_type) in text) is states_rule
