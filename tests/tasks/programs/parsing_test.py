"""Parsing responses, and prompts that contain their task."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azr_jax.tasks.programs import parsing, prompts
from azr_jax.tasks.programs.task import FORBIDDEN_MODULES, ZERO_TRIPLET

CODE = "def f(x):\n  return x + 1"
TEXT = st.text(st.characters(exclude_characters="`<"), min_size=1).filter(
  str.strip
)


def respond(*fences, think="so"):
  body = "\n".join(prompts.fence(label, text) for label, text in fences)
  return f"{think}</think>\n<answer>{body}</answer>"


@pytest.mark.parametrize(
  "text, expected",
  [
    ("a</think><answer>b</answer>", True),
    ("a</think>\n\n<answer>b</answer>\n", True),
    ("<answer>b</answer>", False),
    ("a</think>x<answer>b</answer>", False),
    ("a</think><answer>b", False),
    ("a</think><answer>b</answer><answer>c</answer>", False),
    ("a</think><answer>b</answer>c", False),
    ("a</think><answer>", False),
    ("a</think><answer>b<answer>c</answer>", False),
    ("", False),
    # A think part may quote the tags.
    ("it goes between <answer> and </answer></think><answer>b</answer>", True),
    ("I write <think>, </think>, <answer>.</think><answer>b</answer>", True),
    ("<answer>a</answer> is wrong</think>\n<answer>b</answer>", True),
    ("a</think> <answer>..</answer> no</think><answer>b</answer>", True),
    ("a</think><answer>b</answer></think>", False),
  ],
)
def test_well_formatted(text, expected):
  assert parsing.well_formatted(text) is expected


def in_answer(text, after=""):
  return f"so</think>\n<answer>{text}</answer>{after}"


@pytest.mark.parametrize(
  "response, fenced, published",
  [
    (in_answer("```output\n7\n```"), "7", "7"),
    (in_answer("7"), None, "7"),
    (in_answer("so\n# Output: [7]"), None, "[7]"),
    (in_answer(" "), None, None),
    ("so</think> 7", None, None),
  ],
)
def test_answers_without_a_fence_are_an_option(response, fenced, published):
  parse = parsing.parse_output_answer
  assert parse(response) == fenced
  assert parse(response, parsing.PUBLISHED_CODE) == published
  # Inputs work the same, but a blank text is a call without arguments.
  response = response.replace("utput", "nput")
  response = response.replace("O", "I").replace("```o", "```i")
  parse = parsing.parse_input_answer
  assert parse(response) == fenced
  assert parse(response, parsing.PUBLISHED_CODE) == published


def test_programs_in_a_fence_of_any_label_are_an_option():
  response = in_answer(f"```\n{CODE}\n```")
  assert parsing.parse_program_answer(response) is None
  published = parsing.PUBLISHED_CODE
  assert parsing.parse_program_answer(response, published) == CODE


@pytest.mark.parametrize(
  "response, expected",
  [
    (in_answer("7", after=" I am done."), True),
    ("a</think><answer>b</answer><answer>c</answer>", True),
    ("<answer>7</answer>", False),
    ("a</think><answer>b", False),
  ],
)
def test_text_after_an_answer_is_an_option(response, expected):
  assert parsing.well_formatted(response, parsing.PUBLISHED_CODE) is expected
  assert not parsing.well_formatted(response)


@given(TEXT, TEXT)
def test_proposals_parse_in_either_order(code, argument):
  code = f"def f(x): {code}".rstrip("\n")
  pair = [("python", code), ("input", argument)]
  for fences in (pair, pair[::-1]):
    parsed = parsing.parse_triplet_proposal(respond(*fences))
    assert parsed == (code, argument.strip())


@given(st.text(alphabet="`<>/answer \nthikpyo", max_size=300))
def test_parsers_accept_any_text(text):
  parsing.well_formatted(text)
  for parse in (
    parsing.parse_triplet_proposal,
    parsing.parse_output_answer,
    parsing.parse_input_answer,
    parsing.parse_program_answer,
  ):
    parse(text)
  parsing.parse_induction_proposal(text, 2)


@pytest.mark.parametrize(
  "fences",
  [
    [("python", CODE)],
    [("python", CODE), ("input", "1"), ("input", "2")],
    [("python", CODE), ("python", CODE), ("input", "1")],
    [("python", "x = 1"), ("input", "1")],
  ],
)
def test_invalid_proposals_are_refused(fences):
  assert parsing.parse_triplet_proposal(respond(*fences)) is None


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_a_blank_input_is_a_call_without_arguments(blank):
  text = respond(("python", CODE), ("input", blank))
  assert parsing.parse_triplet_proposal(text) == (CODE, "")
  assert parsing.parse_input_answer(text) == ""
  assert parsing.parse_input_answer(respond(("python", CODE))) is None
  assert parsing.parse_output_answer(respond(("output", blank))) is None
  fences = [("input", "1"), ("input", blank), ("message", "add one")]
  parsed = parsing.parse_induction_proposal(respond(*fences), 2)
  assert parsed == (("1", ""), "add one")


def test_induction_proposals():
  fences = [("input", "1"), ("input", "2"), ("message", "add one")]
  parsed = parsing.parse_induction_proposal(respond(*fences), 2)
  assert parsed == (("1", "2"), "add one")
  assert parsing.parse_induction_proposal(respond(*fences), 3) is None
  twice = [("input", "1"), ("input", "1"), ("message", "m")]
  assert parsing.parse_induction_proposal(respond(*twice), 2) is None
  told = [("input", "1"), ("input", "2"), ("message", CODE)]
  assert parsing.parse_induction_proposal(respond(*told), 2) is None


def test_the_last_answer_block_and_fence_count():
  text = respond(("output", "1")) + respond(("output", "2"), ("output", "3"))
  assert parsing.parse_output_answer(text) == "3"


@pytest.mark.parametrize(
  "answer, output",
  [
    ("```output\n'```'\n```", "'```'"),
    ("```Output\n1\n```", "1"),
    ("~~~output\n1\n~~~", "1"),
    ("- ```output\n  [1,\n   2]\n  ```", "[1,\n 2]"),
    ("```output 5```", "5"),
    ("```output\n1", None),
    ("5", None),
  ],
)
def test_fences_of_an_answer_may_be_written_so(answer, output):
  response = f"so</think><answer>{answer}</answer>"
  assert parsing.parse_output_answer(response) == output


@pytest.mark.parametrize("label", ["python", "py", "Python", "python3"])
@pytest.mark.parametrize("head", ["def f(x):", "def f (x):", "def  f\t(x):"])
def test_programs_may_be_written_so(label, head):
  code = f"{head}\n  return x"
  text = respond((label, code), ("input", "1"))
  assert parsing.parse_triplet_proposal(text) == (code, "1")
  assert parsing.parse_program_answer(text) == code
  fences = [("input", "1"), ("message", code)]
  assert parsing.parse_induction_proposal(respond(*fences), 1) is None


def test_a_fence_inside_of_a_program_is_its_own():
  code = "def f(x):\n  s = '''\n  ```\n  '''\n  return x.split('```')"
  text = respond(("python", code), ("input", "1"))
  assert parsing.parse_triplet_proposal(text) == (code, "1")


@pytest.mark.parametrize("prompt_format", prompts.PROMPT_FORMATS)
def test_prompts_contain_their_task_and_end_in_the_think_part(prompt_format):
  all_prompts = [
    prompts.propose_triplet_prompt("deduction", [ZERO_TRIPLET], prompt_format),
    prompts.propose_triplet_prompt("abduction", [ZERO_TRIPLET], prompt_format),
    prompts.propose_induction_prompt(ZERO_TRIPLET.code, 4, prompt_format),
    prompts.solve_deduction_prompt(ZERO_TRIPLET.code, "7", prompt_format),
    prompts.solve_abduction_prompt(ZERO_TRIPLET.code, "7", prompt_format),
    prompts.solve_induction_prompt(
      ["1", "2"], ["2", "3"], "next", prompt_format
    ),
  ]
  assert len(set(all_prompts)) == len(all_prompts)
  for prompt in all_prompts:
    assert prompt.endswith("Assistant: <think>")
  for prompt in all_prompts[:5]:
    assert prompts.fence("python", ZERO_TRIPLET.code) in prompt
  assert prompts.fence("message", "next") in all_prompts[5]


def test_full_prompts_name_every_forbidden_module():
  prompt = prompts.propose_triplet_prompt(
    "deduction", [ZERO_TRIPLET], prompts.FULL
  )
  assert all(module in prompt for module in FORBIDDEN_MODULES)


def test_full_prompts_state_the_limit_of_time():
  wanted = "- Each call finishes within 2.5 seconds of CPU time.\n- Imports"
  cases = ["1", "2"], ["2", "3"], "next", prompts.FULL
  for texts in (
    [
      prompts.propose_triplet_prompt(
        task_type, [ZERO_TRIPLET], prompts.FULL, limit_s=limit_s
      )
      for limit_s in (2.5, None)
    ]
    for task_type in ("deduction", "abduction", "error_deduction")
  ):
    assert wanted in texts[0] and "CPU" not in texts[1]
  assert wanted in prompts.solve_induction_prompt(*cases, limit_s=2.5)
  assert "CPU" not in prompts.solve_induction_prompt(*cases)
