"""LiveCodeBench's contest problems: programs against their tests."""

import base64
import json
import pickle
import zlib

import pytest

from azr_jax.evals import livecodebench


def contest(tests, **more):
  """Returns the item of a problem with these tests, the first one public."""
  packed = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests[1:]))))
  (item,) = livecodebench.read(
    [
      {
        "question_id": "q",
        "question_content": "Add.",
        "public_test_cases": json.dumps(tests[:1]),
        "private_test_cases": packed.decode(),
        **more,
      }
    ]
  )
  assert len(item.reference["tests"]) == len(tests)
  return item


CONSOLE = contest(
  [
    {"input": "1 2\n", "output": "3\n"},
    {"input": "5 6\n", "output": "11"},
    {"input": "0.5 1\n", "output": "1.50"},
  ]
)


@pytest.mark.parametrize(
  "code, correct",
  [
    ("a, b = map(float, input().split())\nprint(a + b)", True),
    (
      "import sys\ndef main():\n  print(sum(map(float, sys.stdin.read()"
      ".split())))\nif __name__ == '__main__':\n  main()\n  exit()",
      True,
    ),
    (
      "import sys\ndata = sys.stdin.buffer.read().split()\n"
      "sys.stdout.buffer.write(b'%g' % sum(map(float, data)))",
      True,
    ),
    ("print(sum(map(float, open(0).read().split())))", True),
    (
      "import sys, threading\nsys.setrecursionlimit(10 ** 6)\n"
      "threading.stack_size(1 << 26)\ndef main():\n"
      "  print(sum(map(float, input().split())))\n"
      "thread = threading.Thread(target=main)\nthread.start()\n"
      "thread.join()",
      True,
    ),
    (
      "import sys\nprint(sum(map(float, sys.stdin.readline().split())))\n"
      "sys.exit(0)",
      True,
    ),
    ("print(3)", False),
    (
      "a, b = map(float, input().split())\n"
      "print({3.0: 3, 11.0: 11, 1.5: '1.5000000000000001'}[a + b])",
      False,
    ),
    ("print(input() and input())", False),
    ("open('/etc/passwd')", False),
  ],
)
def test_contest_programs_read_and_write_texts(executor, code, correct):
  response = f"```python\n{code}\n```"
  grade = livecodebench.grade(executor, CONSOLE, response).result(60)
  assert grade.correct == correct, grade


@pytest.mark.parametrize(
  "body, correct", [("a + b", True), ("a - b", False), ("1 / 0", False)]
)
def test_contest_methods_are_called(executor, body, correct):
  item = contest(
    [
      {"input": "[1]\n[2]", "output": "[1, 2]"},
      {"input": "[]\n[]", "output": "[]"},
    ],
    metadata=json.dumps({"func_name": "join"}),
    starter_code="class Solution:\n  def join(self, a, b):",
  )
  assert "class Solution" in item.request
  code = (
    "class Solution:\n  def join(self, a: List[int], b):\n"
    f"    return tuple({body})"
  )
  response = f"```python\n{code}\n```"
  grade = livecodebench.grade(executor, item, response).result(60)
  assert grade.correct == correct, grade


def test_a_pickle_of_anything_but_a_string_is_refused():
  packed = base64.b64encode(zlib.compress(pickle.dumps(print))).decode()
  with pytest.raises(pickle.UnpicklingError, match="expected a text"):
    livecodebench._tests(packed)
