"""Few-shot examples are correct and parse as intended."""

import functools

import pytest

from azr_jax.executor import Job
from azr_jax.grading import values
from azr_jax.tasks.programs import parsing, prompts
from azr_jax.tasks.programs.exemplars import EXEMPLARS
from azr_jax.tasks.programs.task import ZERO_TRIPLET

PROMPTS = {
  "propose_triplet": prompts.propose_triplet_prompt(
    "deduction", [ZERO_TRIPLET], prompts.FEW_SHOT
  ),
  "propose_error": prompts.propose_triplet_prompt(
    "error_deduction", [ZERO_TRIPLET], prompts.FEW_SHOT
  ),
  "propose_induction": prompts.propose_induction_prompt(
    ZERO_TRIPLET.code, 4, prompts.FEW_SHOT
  ),
  "solve_deduction": prompts.solve_deduction_prompt(
    ZERO_TRIPLET.code, "7", prompts.FEW_SHOT
  ),
  "solve_error": prompts.solve_error_prompt(
    ZERO_TRIPLET.code, "7", prompts.FEW_SHOT
  ),
  "solve_abduction": prompts.solve_abduction_prompt(
    ZERO_TRIPLET.code, "7", prompts.FEW_SHOT
  ),
  "solve_induction": prompts.solve_induction_prompt(
    ["1", "2"], ["2", "3"], "next", prompts.FEW_SHOT
  ),
}
PARSERS = {
  "propose_triplet": (
    parsing.parse_triplet_proposal,
    lambda e: (e.code, e.inputs[0]),
  ),
  "propose_error": (
    parsing.parse_triplet_proposal,
    lambda e: (e.code, e.failing),
  ),
  "propose_induction": (
    functools.partial(parsing.parse_induction_proposal, num_inputs=4),
    lambda e: (e.inputs, e.message),
  ),
  "solve_deduction": (parsing.parse_output_answer, lambda e: e.outputs[0]),
  "solve_error": (parsing.parse_output_answer, lambda e: e.error),
  "solve_abduction": (parsing.parse_input_answer, lambda e: e.abduced),
  "solve_induction": (parsing.parse_program_answer, lambda e: e.code),
}


def test_claimed_outputs_are_those_of_the_program(executor):
  for e in EXEMPLARS:
    inputs = (*e.inputs, e.abduced)
    result = executor.map([Job(id="exemplar", code=e.code, inputs=inputs)])[0]
    assert result.status == "ok"
    expected = (*e.outputs, e.outputs[0])
    assert all(map(values.values_equal, expected, result.outputs))


def test_claimed_errors_are_those_of_the_program(executor):
  for e in EXEMPLARS:
    result = executor.map([Job("exemplar", e.code, (e.failing,))])[0]
    assert result.error == e.error


@pytest.mark.parametrize("name", PROMPTS)
def test_example_responses_parse_to_the_intended_answers(name):
  *exchanges, last = PROMPTS[name].split("\n\nUser: ")
  assert last.endswith("Assistant: <think>")
  assert len(exchanges) == len(EXEMPLARS)
  parse, intended = PARSERS[name]
  for exemplar, exchange in zip(EXEMPLARS, exchanges, strict=True):
    response = exchange.partition("Assistant: <think>")[2]
    assert parsing.well_formatted(response)
    assert parse(response) == intended(exemplar)
