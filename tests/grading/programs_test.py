"""Grading honest answers, and exploits that work elsewhere.

The published AZR grader accepts these exploits: answers that run code in the
trainer or close the call and append `or`, and programs that return an
always-equal object or raise an exception that counts as success.
"""

import contextlib
import os
import signal
import time

import pytest

from azr_jax.executor import Executor, Job
from azr_jax.grading import programs
from azr_jax.grading.outcome import Outcome
from tests.executor.process_table import children_of

PLUS = "def f(x):\n  return x + 1"
LOOP_ON_9 = "def f(x):\n  while x == 9: pass\n  return x + 1"


@pytest.fixture(scope="module")
def brief():
  """An executor with a short limit, for expressions that never finish."""
  with Executor(workers=2, timeout_s=0.3, memory_mb=512) as pool:
    yield pool


def abduct(executor, code, reference, answer):
  future = programs.submit_abduction_answer(executor, code, reference, answer)
  return bool(future.result(60))


def deduce(executor, reference, answer, may_compute=False):
  future = programs.submit_deduction(executor, reference, answer, may_compute)
  return bool(future.result(60))


def are_correct(future):
  return tuple(map(bool, future.result(60)))


def induce(executor, code, inputs=("1", "2"), outputs=("2", "3")):
  future = programs.submit_induction(executor, code, inputs, outputs)
  return bool(future.result(60))


@pytest.mark.parametrize(
  "reference, answer, correct",
  [
    ("[1, 2]", "[1,2]", True),
    ("None", "None", True),
    ("1", "1.0", False),
    ("''", "", False),
    ("'a'", "'" + "a" * 70_000 + "'", False),
    ("[1, ...]", "[1, ...]", False),
    ("(1, 2)", "1, 2  # two", True),
    # Python drops an item from these literals.
    ("{1}", "{1, True}", True),
    ("{1: 'b'}", "{1: 'a', 1.0: 'b'}", True),
    ("[{(1, 2)}]", "[{(1, 2), (True, 2)}]", True),
    ("OrderedDict([(1, 3)])", "OrderedDict([(1, 2), (1, 3)])", True),
    ("OrderedDict([(1, 3)])", "OrderedDict([[1, 3]])", True),
    ("{1}", "{1, 2.0}", False),
    ("{1, 2.0}", "{2.0, 1}", True),
  ],
)
def test_deduction(executor, reference, answer, correct):
  assert deduce(executor, reference, answer) is correct


@pytest.mark.parametrize(
  "reference, answer",
  [
    ("set()", "set([])"),
    ("float('inf')", "float('Infinity')"),
    ("Counter({'a': 2})", "collections.Counter({'a': 2})"),
    ("Counter({'a': 2})", "Counter(a=2)"),
    ("deque([2, 3])", "deque([2, 3], maxlen=2)"),
    ("Fraction(1, 3)", "Fraction('1/3')"),
    ("complex(1.0, -2.0)", "complex(1, -2)"),
    ("complex(1.0, -2.0)", "1 - 2j"),
    ("[{'a': 1}, [2]]", "[dict(a=1), list((2,))]"),
    ("-3", "-+3"),
    ("{'a': [1]}", "defaultdict(list, {'a': [1]})"),
    ("{'a': 1}", "collections.defaultdict(None, a=1)"),
    ("[float('-inf')]", "[-math.inf]"),
    ("complex(float('inf'), 0.0)", "complex(float('inf'), 0)"),
    ("frozenset()", "frozenset(list())"),
    ("Counter({})", "Counter(dict())"),
  ],
)
def test_an_output_may_use_constructors_of_values(executor, reference, answer):
  assert deduce(executor, reference, answer)


@pytest.mark.parametrize(
  "reference, answer",
  [
    ("328350", "sum(i * i for i in range(100))"),
    ("[0, 0, 0]", "[0] * 3"),
    ("2", "2 if True else 3"),
    ("(1, 2)", "1, 1 + 1"),
    ("[1, 2]", "[*range(1, 3)]"),
    ("Counter({'a': 2})", "Counter('aa')"),
    ("Counter({'a': 2})", "Counter(['a', 'a'])"),
    ("{'a', 'b'}", "set('ab')"),
    ("['a']", "list('a')"),
    ("[2]", "list({2: 1}.keys())"),
    ("['a']", "list(dict(a=1))"),
    ("Counter({'a': 2})", "Counter(list(('a', 'a')))"),
    ("{'a': 2}", "defaultdict(int, [('a', 1 + 1)])"),
    ("0.25", "float(Fraction(1, 4))"),
    ("2.0", "math.sqrt(4)"),
    ("{'a': 1}", "{**{'a': 1}}"),
    ("'aa'", "'a' 'a'.upper().lower()"),
    ("'a1'", "f'a{1}'"),
    ("6", "int('6')"),
    ("-1", "~0"),
    ("Fraction(1, 2)", "Fraction(1, 4) * 2"),
    ("deque([0])", "deque([0] * 1)"),
  ],
)
def test_an_output_that_is_computed_is_wrong(executor, reference, answer):
  submit = programs.submit_deduction
  assert submit(executor, reference, answer).result(60) is Outcome.COMPUTED
  assert deduce(executor, reference, answer, may_compute=True)
  wrong = submit(executor, "'another value'", answer).result(60)
  assert wrong is Outcome.INCORRECT


def test_a_refused_output_is_evaluated_once(executor, monkeypatch):
  jobs, submit = [], executor.submit
  monkeypatch.setattr(
    executor, "submit", lambda job: jobs.append(job) or submit(job)
  )
  assert not deduce(executor, "6", "2 * 3")
  assert deduce(executor, "6", "2 * 3", may_compute=True)
  assert deduce(executor, "{'a': 1}", "dict(a=1)")
  assert [job.runs for job in jobs] == [1, 3, 3]


@pytest.mark.parametrize(
  "answer",
  [
    "eval(gold_output)",
    "gold_output",
    "type('E', (), {'__eq__': lambda a, b: True})()",
    "__import__('os').system('true')",
    "exec('import sys')",
    "f(1)",
    "(x := 2)",
  ],
)
def test_hopeless_outputs_start_no_child(executor, answer):
  before = executor.counters()["programs"]
  assert not deduce(executor, "2", answer)
  assert executor.counters()["programs"] == before


def test_a_long_output_is_not_truncated(executor):
  code = "def f(n):\n  return list(range(n))"
  result = executor.submit(Job("long", code, ("300",))).result()
  output = str(list(range(300)))
  assert result.outputs == (output,)
  assert deduce(executor, output, output)


@pytest.mark.parametrize(
  "answer", ["2", " 2 ", "x=2", "(2)", "2 # two", "1 + 1", "**dict(x=2)"]
)
def test_abduction_accepts_any_input_with_the_same_output(executor, answer):
  assert abduct(executor, PLUS, "3", answer)


@pytest.mark.parametrize(
  "answer",
  [
    "3",
    "2.0",
    "",
    "2, 2",
    "'2'",
    "1 + 2",
    "f(1)",
    "(lambda: 2)",
    "(x := 2)",
    "0) or True or f(0",
    "0) == 1 or (3",
    "0) if False else (3",
    "0)\n3 #",
    "type('E', (), {'__add__': lambda a, b: 3})()",
    "2" + " " * 70_000,
  ],
)
def test_abduction_refuses(executor, answer):
  assert not abduct(executor, PLUS, "3", answer)


def test_abduction_with_a_reference_that_is_no_value(executor):
  assert not abduct(executor, "def f(x):\n  raise StopIteration", "", "1")
  assert not abduct(executor, "def f(x):\n  return lambda: 1", "<f>", "1")


def test_abduction_of_nan(executor):
  code = "def f(x):\n  return x * float('nan')"
  assert abduct(executor, code, "float('nan')", "1")


def test_each_distinct_abduction_answer_is_one_job(executor):
  before = executor.counters()["programs"]
  answers = ["2", "5", " 2  # two", "x", "", None]
  future = programs.submit_abduction(executor, PLUS, "3", answers)
  assert are_correct(future) == (True, False, True, False, False, False)
  assert executor.counters()["programs"] == before + 3


def test_equal_inputs_of_another_sign_or_type_are_other_answers(executor):
  code = "def f(x):\n  return str(x)"
  answers = ["0.0", "-0.0", "0", "x=0.0", "x = +0.0"]
  future = programs.submit_abduction(executor, code, "'0.0'", answers)
  assert are_correct(future) == (True, False, False, True, True)


def test_an_expression_costs_one_more_job(executor):
  before = executor.counters()["programs"]
  answers = ["2", "1 + 1", "4 // 2", "1 + 1", "1.0 / 2"]
  future = programs.submit_abduction(executor, PLUS, "3", answers)
  assert are_correct(future) == (True, True, True, True, False)
  # Three expressions with two distinct values, 2 and 0.5.
  assert executor.counters()["programs"] == before + 3 + 2


class Recording:
  """An executor that records its jobs."""

  def __init__(self, executor):
    self.executor = executor
    self.jobs = []

  def submit(self, job):
    self.jobs.append(job)
    return self.executor.submit(job)


def test_an_answer_is_evaluated_without_program_and_reference(executor):
  recording = Recording(executor)
  code = "def f(secret_name):\n  return [777, secret_name]"
  for reference, answer in (("[777, 3]", "1 + 2"), ("[777, 5]", "1 + 4")):
    assert abduct(recording, code, reference, answer)
    assert deduce(recording, reference, f"[770 + 7, {answer}]", True)
  evaluating = [job for job in recording.jobs if "1 + " in str(job.inputs)]
  assert len(evaluating) == 4
  for job in evaluating:
    assert len(job.inputs) == 1 and job.runs == 3
    assert "secret_name" not in job.code and "777" not in str(job)
  running = [job for job in recording.jobs if job not in evaluating]
  assert [(job.code, job.inputs) for job in running] == [
    (code, ("3",)),
    (code, ("5",)),
  ]
  assert not any("777" in text for job in running for text in job.inputs)


@pytest.mark.parametrize(
  "bad",
  [
    "9 ** 9 ** 9",
    "[0] * 10 ** 12",
    "[[[0] * 999] * 999] * 999",
    "(lambda g: g(g))(lambda g: g(g))",
    "max(iter(lambda: 0, 1))",
    pytest.param("sum(1 for _ in itertools.count())", marks=pytest.mark.slow),
  ],
)
def test_an_expression_without_an_end_fails_only_itself(brief, bad):
  answers = ["2", bad, "1 + 1"]
  future = programs.submit_abduction(brief, PLUS, "3", answers)
  assert are_correct(future) == (True, False, True)
  assert not deduce(brief, "3", bad)


def test_a_blank_answer_is_a_call_without_arguments(executor):
  code = "def f(x=2):\n  return x + 1"
  future = programs.submit_abduction(executor, code, "3", ["", " ", None, "1"])
  assert are_correct(future) == (True, True, False, False)


BACKWARDS = "def f(x, act):\n  x = sorted(x)\n  act(x)\n  return x"


@pytest.mark.parametrize(
  "answer, correct",
  [
    ("[1, 2], (lambda x: x.reverse())", True),
    ("[1, 2], list.reverse", True),
    ("[2] + [1], lambda x: x.sort(key=lambda v: -v)", True),
    ("[1, 2], lambda x: None", False),
    ("[1, 2], lambda x: f", False),
    ("[1, 2], lambda x: x.__init__([2, 1])", False),
    ("[1, 2], print_all", False),
  ],
)
def test_arguments_may_be_objects_where_a_benchmark_says_so(
  executor, answer, correct
):
  future = programs.submit_abduction_answer(
    executor, BACKWARDS, "[2, 1]", answer, objects=True
  )
  assert bool(future.result(60)) is correct
  assert not abduct(executor, BACKWARDS, "[2, 1]", answer)


def test_arguments_do_not_see_the_program(executor):
  code = "gold = 3\ndef sorted(x): return gold\ndef f(x):\n  return x"
  for answer in ("sorted([3])[0]", "3"):
    assert abduct(executor, code, "3", answer)
  for answer in ("gold", "sorted", "sorted([4])", "f(3)"):
    assert not abduct(executor, code, "3", answer)


def test_arguments_of_types_that_the_program_does_not_import(executor):
  code = "float = set = None\ndef f(*values):\n  return list(values)"
  inputs = "float('inf'), set(), deque([1]), Counter({1: 2}), Fraction(1, 2)"
  result = executor.submit(Job("types", code, (inputs,))).result()
  assert result.outputs == (f"[{inputs}]",)
  assert abduct(executor, code, result.outputs[0], inputs)


def test_an_endless_answer_does_not_fail_the_others(executor):
  answers = ["2", "9", "1"]
  future = programs.submit_abduction(executor, LOOP_ON_9, "3", answers)
  assert are_correct(future) == (True, False, False)


@pytest.mark.parametrize(
  "bad",
  [
    "import os; os._exit(0)",
    "import sys; sys.setrecursionlimit(10**8); g = lambda: [*map(h, [1])]; "
    "h = lambda _: g(); g()",
  ],
)
def test_an_answer_that_ends_the_child_does_not_fail_the_others(executor, bad):
  code = f"def f(x):\n  if x == 9:\n    {bad}\n  return x + 1"
  future = programs.submit_abduction(executor, code, "3", ["2", "9", "1"])
  assert are_correct(future) == (True, False, False)


def test_long_outputs_of_some_answers_do_not_fail_the_others(executor):
  code = "def f(x):\n  return 3 if x == 2 else 'x' * 60_000"
  answers = ["2", *map(str, range(10, 30))]
  future = programs.submit_abduction(executor, code, "3", answers)
  assert are_correct(future) == (True, *[False] * 20)


def test_answers_do_not_see_each_other(executor):
  code = "seen = []\ndef f(x):\n  seen.append(x)\n  return len(seen)"
  future = programs.submit_abduction(executor, code, "1", ["1", "2"])
  assert are_correct(future) == (True, True)


@pytest.mark.parametrize(
  "count",
  [
    "import math as m\ndef f(x):\n  m.n = getattr(m, 'n', 0) + 1\n  return m.n",
    "import sys\ndef f(x):\n  frame, n = sys._getframe(), 1\n  while frame:\n"
    "    n = max(n, len(frame.f_locals.get('inputs', ())))\n"
    "    frame = frame.f_back\n  return n",
  ],
)
def test_an_answer_s_verdict_does_not_depend_on_its_group(executor, count):
  answers = ["1", "2", "3"]
  future = programs.submit_abduction(executor, count, "1", answers)
  assert are_correct(future) == (True,) * 3
  assert abduct(executor, count, "1", "2")
  assert not induce(executor, count, ("1", "2", "3"), ("1", "2", "3"))
  assert induce(executor, count, ("1", "2", "3"), ("1", "1", "1"))


@pytest.mark.parametrize("name", ["WorkerDied", "Signal9"])
def test_a_program_cannot_pretend_to_be_lost(executor, name):
  code = f"class {name}(Exception): pass\ndef f(x):\n  raise {name}"
  future = programs.submit_abduction(executor, code, "1", ["1", "2"])
  assert future.result(60) == (Outcome.INCORRECT,) * 2


def test_hopeless_answers_start_no_child(executor):
  before = executor.counters()["programs"]
  answers = [None, "x", "0) or f(1", "[" * 70_000]
  future = programs.submit_abduction(executor, PLUS, "3", answers)
  assert are_correct(future) == (False,) * 4
  assert not induce(executor, "")
  assert executor.counters()["programs"] == before


def test_induction(executor):
  assert induce(executor, PLUS)
  assert not induce(executor, PLUS, outputs=("2", "4"))
  assert not induce(executor, PLUS, outputs=("2", "3.0"))
  assert not induce(executor, PLUS, inputs=(), outputs=())


@pytest.mark.parametrize(
  "body",
  [
    "return type('E', (), {'__eq__': lambda a, b: True})()",
    "return type('I', (int,), {'__eq__': lambda a, b: True})(x + 1)",
    "raise StopIteration",
    "raise SystemExit",
    "raise Exception('done')",
    "return None",
    "import os; os._exit(0)",
    "while True: pass",
    "return (i for i in [x + 1])",
  ],
)
def test_induction_exploits(executor, body):
  assert not induce(executor, f"def f(x):\n  {body}")


def test_induction_needs_every_case(executor):
  code = "def f(x):\n  if x == 2: raise ValueError\n  return x + 1"
  assert not induce(executor, code)


@pytest.mark.parametrize(
  "body, said",
  [
    ("return x + 1", ""),
    ("return x", "f(1) returns 1, but should return 2."),
    ("return x + 1 if x < 2 else x", "f(2) returns 2, but should return 3."),
    ("if x == 2: raise KeyError", "f(1) returns None, but should return 2."),
    (
      "if x == 2: raise KeyError\n  return x + 1",
      "f(2) fails with KeyError, but should return 3.",
    ),
    ("return (", "f(1) fails with SyntaxError, but should return 2."),
  ],
)
def test_the_first_failing_case_of_a_program_is_told(executor, body, said):
  code = f"def f(x):\n  {body}"
  future = programs.explain_induction(executor, code, ["1", "2"], ["2", "3"])
  assert future.result(60) == (Outcome.of(not said), said)


def test_what_a_wrong_input_leads_to_is_told(executor):
  answers = ["2", "5", "'a'", None, "lambda: 1"]
  found = programs.explain_abduction(executor, PLUS, "3", answers).result(60)
  assert [one.said for one in found] == [
    "",
    "f(5) returns 6, but should return 3.",
    "f('a') fails with TypeError, but should return 3.",
    "There is no final answer.",
    "The final answer lambda: 1 is wrong.",
  ]


def test_induction_needs_as_many_outputs(executor):
  with pytest.raises(ValueError, match="2 inputs and 1 outputs"):
    programs.submit_induction(executor, PLUS, ["1", "2"], ["2"])


def test_process_input_is_an_ordinary_name(executor):
  code = "def process_input(x): return x + 1\ndef f(x): return process_input(x)"
  assert abduct(executor, code, "3", "2")


@pytest.mark.parametrize(
  "body", ["hash(str(x))", "list({str(i) for i in range(9)})", "id([])"]
)
def test_nondeterminism_is_found(executor, body):
  job = Job("n", f"def f(x):\n  return {body}", ("1",), runs=2)
  assert executor.submit(job).result().status == "nondeterministic"


@pytest.fixture(scope="module")
def impatient():
  with Executor(1, timeout_s=0.2, memory_mb=256, job_factor=2.0) as pool:
    yield pool


def test_a_limit_of_time_is_told_apart_from_a_wrong_answer(impatient):
  wait = "def f(x):\n  while x >= 8: pass\n  return x + 1"
  answers = ["2", "9", "1", "8", "sum(range(10**9))", None]
  future = programs.submit_abduction(impatient, wait, "3", answers)
  wanted = "CORRECT TIMEOUT INCORRECT TIMEOUT TIMEOUT INCORRECT"
  assert [outcome.name for outcome in future.result(60)] == wanted.split()
  slow = "sum(range(10**9))"
  deduced = programs.submit_deduction(impatient, "3", slow, may_compute=True)
  assert deduced.result(60) is Outcome.TIMEOUT
  # If computing is not allowed, a computation is wrong even if it times out.
  deduced = programs.submit_deduction(impatient, "3", slow)
  assert deduced.result(60) is Outcome.INCORRECT
  induced = programs.submit_induction(impatient, wait, ["1", "9"], ["2", "10"])
  assert induced.result(60) is Outcome.TIMEOUT
  told = programs.explain_induction(impatient, wait, ["1", "9"], ["2", "10"])
  assert told.result(60).said.startswith("f(9) does not end in time")
  # A wrong value before the limit proves the program wrong.
  induced = programs.submit_induction(impatient, wait, ["1", "9"], ["3", "10"])
  assert induced.result(60) is Outcome.INCORRECT


def test_an_answer_does_not_use_up_the_time_of_another(impatient):
  """Each of eight answers takes 60 % of the limit."""
  code = f"""
import time
def f(x):
  end = time.process_time() + {0.6 * 0.2}
  while time.process_time() < end: pass
  return 0
"""
  answers = [str(number) for number in range(8)]
  future = programs.submit_abduction(impatient, code, "0", answers)
  assert are_correct(future) == (True,) * 8


def test_a_lost_process_is_told_apart():
  code = "def f(x):\n  while True: pass"
  # On a busy machine, a short limit would end the loop before the signal.
  with Executor(workers=1, timeout_s=30, memory_mb=256) as pool:
    future = programs.submit_abduction(pool, code, "3", ["1"])
    while not future.done():
      for pid in children_of(pool.processes()):
        with contextlib.suppress(ProcessLookupError):
          os.kill(pid, signal.SIGKILL)
      time.sleep(0.01)
    assert future.result() == (Outcome.LOST,)


def test_closing_the_pool_cancels_grading():
  pool = Executor(workers=1, timeout_s=30, memory_mb=256)
  future = programs.submit_abduction(pool, LOOP_ON_9, "3", ["9"])
  pool.close()
  assert future.cancelled()
