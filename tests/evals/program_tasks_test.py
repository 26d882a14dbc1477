"""Program benchmarks with the prompts and grading of training."""

import functools

import pytest
from excerpts import FIXTURES
from typed import instance_of, present, stand_in

from azr_jax.configs import azr, orz
from azr_jax.evals import cruxeval, program_tasks, registry
from azr_jax.tasks import records
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.programs import prompts, solving
from azr_jax.tasks.programs.task import Triplet
from azr_jax.trainer import settings
from azr_jax.trainer.evaluation_settings import PeriodicSettings

CRUXEVAL = FIXTURES.parents[1] / "grading/fixtures/cruxeval_40.jsonl"
SOLVER_PROMPT = functools.partial(
  solving.solve_prompt_text, prompt_format="compact"
)


def trained(name):
  return program_tasks.with_training_prompt(
    registry.BENCHMARKS[name], SOLVER_PROMPT
  )


def response(label, text):
  return prompts.response("so", f"```{label}\n{text}\n```")


def test_cruxeval_is_asked_and_graded_as_in_training(executor):
  raw = list(records.read(str(CRUXEVAL)))
  for name, label, given in (
    ("cruxeval_o", "output", "input"),
    ("cruxeval_i", "input", "output"),
  ):
    benchmark = trained(name)
    pending = []
    for row, item in zip(raw, benchmark.read(raw), strict=True):
      prompt = present(benchmark.prompt)(item, "training", stand_in(Chat))
      assert row["code"] in prompt and row[given] in prompt
      assert prompt.endswith("<think>")
      for text in (response(label, row[label]), row[label]):
        pending.append(benchmark.grade(executor, item, text))
    grades = [future.result(120).correct for future in pending]
    assert grades == [True, False] * len(raw)


@pytest.mark.parametrize(
  "input_text, output, answer",
  [
    ("", "1", ""),
    ("lambda x: x", "2", "lambda y: y + 0"),
    ("lambda x: x", "2", "range(3)"),
  ],
)
def test_every_item_of_cruxeval_i_has_a_right_answer(
  executor, input_text, output, answer
):
  benchmark = trained("cruxeval_i")
  (item,) = benchmark.read(
    [
      {
        "id": "1",
        "code": "def f(*a):\n  return a[0](2) if a else 1",
        "input": input_text,
        "output": output,
      }
    ]
  )
  grade = benchmark.grade(executor, item, response("input", answer)).result(60)
  assert grade.correct == (answer != "range(3)")


@pytest.mark.parametrize(
  "code, call, program, arguments",
  [
    ("def g(a):\n  return a", "g(a = [1])", "def f(a):\n  return a", "a = [1]"),
    ("def f(a):\n  return a", "f(2)", "def f(a):\n  return a", "2"),
    (
      "def g(f):\n  return f",
      "g(f=3)",
      "def g(f):\n  return f\n\nf = g",
      "f=3",
    ),
    (
      "def g(n):\n  return n and g(n - 1)",
      "g(3)",
      "def f(n):\n  return n and f(n - 1)",
      "3",
    ),
  ],
)
def test_functions_of_livecodebench_are_called_f(
  executor, code, call, program, arguments
):
  benchmark = trained("livecodebench_execution")
  (item,) = benchmark.read([{"code": code, "input": call, "output": "[1]"}])
  task_type, task = present(benchmark.task_of)(item)
  task = instance_of(Triplet, task)
  assert (task_type, task.code, task.input) == ("deduction", program, arguments)
  graded = benchmark.grade(executor, item, response("output", "[1]"))
  assert graded.result(60).correct


@pytest.mark.parametrize("prompt_format", ["compact", "few_shot"])
@pytest.mark.parametrize(
  "name, label", [("cruxeval_o", "output"), ("cruxeval_i", "input")]
)
def test_cruxeval_can_be_asked_in_the_solver_s_formats(
  executor, name, label, prompt_format
):
  raw = list(records.read(str(CRUXEVAL)))[:1]
  benchmark = registry.BENCHMARKS[name]
  benchmark = program_tasks.in_format(benchmark, prompt_format)
  (item,) = benchmark.read(raw)
  prompt = present(benchmark.prompt)(item, prompt_format, stand_in(Chat))
  task_type, task = present(benchmark.task_of)(item)
  assert prompt == solving.solve_prompt_text(
    task_type, task, prompt_format=prompt_format
  )
  answer = response(label, raw[0][label])
  assert benchmark.grade(executor, item, answer).result(60).correct


@pytest.mark.parametrize(
  "name, prompt_format",
  [
    ("cruxeval_o", "full"),
    ("gsm8k", "compact"),
    ("programs_heldout", "compact"),
  ],
)
def test_other_formats_and_benchmarks_stay_as_they_are(name, prompt_format):
  benchmark = registry.BENCHMARKS[name]
  assert program_tasks.in_format(benchmark, prompt_format) is benchmark


def test_other_benchmarks_have_no_prompt_of_training():
  (item,) = registry.BENCHMARKS["gsm8k"].read(
    [{"question": "1+1?", "answer": "#### 2"}]
  )
  with pytest.raises(ValueError, match="training asks nothing like 'gsm8k'"):
    present(trained("gsm8k").prompt)(item, "training", stand_in(Chat))


def test_the_paper_s_evaluation_is_that_of_figure_14():
  for variant in azr.PAPER_MODELS:
    c = settings.read_train(azr.get_config(variant)).shared.evaluation
    assert (c.limit, c.samples, c.temperature) == (0, 1, 0.0)
    assert c.prompt_format == program_tasks.TRAINING
    assert {*c.benchmarks.split(",")} == {
      benchmark.name for benchmark in cruxeval.BENCHMARKS
    }
  # The paper evaluates at temperature 1.
  assert orz.get_config("tiny").evaluation.temperature == 1.0


def test_several_greedy_responses_are_refused():
  with pytest.raises(ValueError, match="samples=2: expected 1, because"):
    PeriodicSettings(samples=2)
  assert PeriodicSettings(samples=2, temperature=1.0).samples == 2
