"""Counting messages that say what an environment's program does."""

import json
import sys

from experiments.environments import messages

PROPOSAL = """\
```python
import random
def generate(seed):
  return [random.Random(seed).randint(0, 9)]
def solve({argument}):
{body}
def score(x, answer):
  return float(answer == solve(x))
```
```message
{message}
```
"""
DOUBLE, FIRST = "  {a} = {a} * 2", "  return {a}[0]"


def code_of(argument, *lines):
  body = "\n".join(line.format(a=argument) for line in lines)
  text = PROPOSAL.format(argument=argument, body=body, message="m")
  return text.partition("```python\n")[2].partition("```")[0]


def write(path, rows):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def environment(code, message):
  return {"task": {"environment": {"code": code, "message": message}}}


def count(tmp_path, monkeypatch, capsys, by_step, seeds=()):
  known = PROPOSAL.format(
    argument="x",
    body="\n".join((DOUBLE.format(a="x"), FIRST.format(a="x"))),
    message="twice, then take the first",
  )
  write(
    tmp_path / "prepared/texts/conversations.jsonl",
    [{"prompt": "", "completion": known}],
  )
  run = tmp_path / "environments_0/records"
  write(run / "seeds.jsonl", [{"code": code} for code in seeds])
  for step, tasks in by_step.items():
    write(run / f"tasks/{step:06d}.jsonl", tasks)
  monkeypatch.setattr(sys, "argv", ["messages", str(tmp_path)])
  messages.main()
  return capsys.readouterr().out.splitlines()


def test_messages_are_right_in_order_under_any_name(
  tmp_path, monkeypatch, capsys
):
  both = code_of("v", DOUBLE, FIRST)
  other = code_of("w", FIRST)
  by_step = {
    1: [
      environment(both, "twice, then take the first"),
      environment(both, "not counted: the same program"),
      environment(other, "twice"),
      environment(code_of("u", DOUBLE, FIRST), "take the first, then twice"),
    ],
    11: [environment(code_of("t", FIRST), " take the first\n")],
    40: [environment(code_of("s", DOUBLE, FIRST), "twice")],
  }
  assert count(tmp_path, monkeypatch, capsys, by_step) == [
    "steps 1 to 10: 1 of 3, 33%",
    "11 to 30: 1 of 1, 100%",
    "31 to 40: 0 of 1, 0%",
  ]


def test_seeds_helpers_and_unknown_statements_are_left_out(
  tmp_path, monkeypatch, capsys
):
  seed = code_of("z", FIRST)
  helper = "def g(x):\n  return x\n" + code_of("y", FIRST)
  left_out = [
    environment(seed, "take the first"),
    environment(helper, "take the first"),
    environment(code_of("x", "  return {a}[1]"), "take the second"),
  ]
  counted = environment(code_of("q", FIRST), "take the first")
  by_step = {1: [*left_out, counted], 11: [left_out[-1]]}
  assert count(tmp_path, monkeypatch, capsys, by_step, seeds=[seed]) == [
    "steps 1 to 10: 1 of 1, 100%",
    "11 to 30: none",
    "31 to 40: none",
  ]
