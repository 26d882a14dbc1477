"""Tests of reading the state of a run whose inputs are expressions."""

import json

from scripted_azr import settings

from azr_jax.systems.azr.system import AZR
from azr_jax.tasks.programs import buffer as buffer_lib
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs.task import InductionTask, Triplet

ECHO = "def f(x=0):\n  return x"
OBJECT = "class P(list): pass\ndef f(x):\n  return len(x)"
LITERAL = Triplet(ECHO, "[1,2]", "[1, 2]")


def old_state(tasks):
  """Returns the state of a run of old, with the tasks in every buffer."""
  entries = [
    {
      "step": step,
      "task": task_lib.to_json(task),
      "key": f"key {step}",
      "right": 1.0,
      "asked": 2.0,
    }
    for step, task in enumerate(tasks)
  ]
  return {
    "deduction": {"entries": entries},
    "abduction": {"entries": entries},
    "induction": {"entries": entries[-1:]},
    "answers": {},
  }


def test_inputs_of_an_old_run_become_literals(make_context):
  tasks = [
    LITERAL,
    Triplet(ECHO, "[0] * 2", "[0, 0]"),
    Triplet(OBJECT, "P()", "0"),
    Triplet(ECHO, "", "0"),
    InductionTask(ECHO, ("1", "1 + 1"), ("1", "2"), "same"),
  ]
  system = AZR(settings(), make_context())
  system.load_state_dict(old_state(tasks))
  literal = Triplet(ECHO, "[0, 0]", "[0, 0]")
  induction = InductionTask(ECHO, ("1", "2"), ("1", "2"), "same")
  kept = [LITERAL, literal, tasks[3], induction]
  assert system.buffers["deduction"].tasks() == kept
  assert system.buffers["abduction"].tasks() == kept
  assert system.buffers["induction"].tasks() == [induction]
  entries = system.state_dict()["deduction"]["entries"]
  assert [entry["key"] for entry in entries] == [
    "key 0",
    buffer_lib.task_key(literal),
    "key 3",
    buffer_lib.task_key(induction),
  ]
  assert {(e["num_correct"], e["num_responses"]) for e in entries} == {
    (1.0, 2.0)
  }


def test_a_new_state_is_not_validated_again(make_context):
  context = make_context()
  system = AZR(settings(), context)
  system.load_state_dict(old_state([Triplet(ECHO, "1 + 1", "2")]))
  before = context.executor.counters()["programs"]
  state = json.loads(json.dumps(system.state_dict()))
  other = AZR(settings(), context)
  other.load_state_dict(state)
  assert other.state_dict() == state
  assert context.executor.counters()["programs"] == before
