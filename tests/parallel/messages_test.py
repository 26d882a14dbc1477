"""Messages between hosts: every value comes back, and no code runs."""

import ast
import json
import math
import os
import pathlib
import pickle

import numpy as np
import pytest

import azr_jax
from azr_jax.executor import Result
from azr_jax.grading.outcome import Outcome
from azr_jax.parallel import messages
from azr_jax.tasks.programs.task import InductionTask, Triplet
from azr_jax.tasks.programs.validation import Rejection

OUTCOMES = [
  None,
  True,
  0,
  -(2**63),
  10**5000,
  0.1,
  -0.0,
  math.inf,
  "text \ud800 \x00 é \U0001f600",
  (),
  [],
  {},
  ((1, [2.5, None]), "x"),
  {0: (True, "a"), (1, 2): [], None: {"tuple": 1}, "int": "0x1"},
  {"of": "os:system", "fields": {"command": "id"}},
  Result("job", "ok", ("1", None), None, 0.25, 2, 0.125),
  Triplet("def f(x):\n  return x", "'Hello'", "'Hello'"),
  InductionTask("code", ("1", "2"), ("3", "4"), "message"),
  Rejection("timeout"),
  (Outcome.CORRECT, Outcome.TIMEOUT),
  {3: Rejection("format"), 5: Result("", "timeout", (), "x", 1.0)},
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=range(len(OUTCOMES)))
def test_an_outcome_comes_back_as_it_was(outcome):
  back = messages.loads(messages.dumps(outcome))
  assert back == outcome and type(back) is type(outcome)
  if outcome != 10**5000:  # Python refuses to print such a long integer.
    assert repr(back) == repr(outcome)


def test_a_number_that_is_none_comes_back_as_none():
  assert math.isnan(messages.loads(messages.dumps(math.nan)))
  assert messages.loads(messages.dumps(np.float64(0.5))) == 0.5


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), int, np.zeros(2)])
def test_other_types_are_refused_before_they_are_sent(value):
  with pytest.raises(TypeError, match="expected numbers, strings"):
    messages.dumps([value])


def of(name, **fields):
  encoded = {"dict": [[key, value] for key, value in fields.items()]}
  return json.dumps({"of": name, "fields": encoded}).encode()


def test_a_message_makes_only_dataclasses_that_are_loaded(tmp_path):
  assert messages.loads(of(f"{Rejection.__module__}:Rejection", reason="x"))
  trace = tmp_path / "trace"
  for message in (
    of("os:system", command=f"touch {trace}"),
    of("builtins:eval", source="1"),
    of("builtins:int", x="1"),
    of("antigravity:fly"),
    of("azr_jax.executor.job:dataclasses"),
    of("azr_jax.executor.job:Job"),
    of("nothing"),
    b'{"of": 3}',
    b'{"tuple": 3}',
    b"[" * 100_000,
    b"\xff\x00",
    pickle.dumps((os.system, (f"touch {trace}",))),
  ):
    with pytest.raises(ValueError):
      messages.loads(message)
  assert not trace.exists()


def test_no_module_reads_pickles_of_others():
  package = pathlib.Path(azr_jax.__file__).parent
  users = set()
  for path in package.rglob("*.py"):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
      if isinstance(node, ast.Import | ast.ImportFrom):
        names = [alias.name for alias in node.names]
        names.append(getattr(node, "module", None) or "")
        if {"pickle", "cloudpickle", "shelve", "dill"} & {*names}:
          users.add(path.relative_to(package).as_posix())
  assert users == {
    # Its unpickler refuses anything but strings.
    "evals/livecodebench_files.py",
    # A worker process reads pickles only from the trainer that started it, and
    # answers in JSON.
    "functions/by_value.py",
    "functions/process.py",
    "functions/worker.py",
  }
