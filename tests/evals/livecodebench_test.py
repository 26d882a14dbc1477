"""LiveCodeBench's contest problems: reading releases and running tests."""

import base64
import json
import pickle
import sys
import types
import zlib

import huggingface_hub
import pytest

from azr_jax.configs import evaluate, orz
from azr_jax.evals import items, livecodebench, livecodebench_files, registry
from azr_jax.evals.items import ItemOptions
from azr_jax.executor import Executor, settings
from azr_jax.tasks import records


def contest(tests, **more):
  """Returns the item of a problem with these tests. The first is public."""
  packed = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests[1:]))))
  item = livecodebench_files.item(
    {
      "question_id": "q",
      "question_content": "Add.",
      "public_test_cases": json.dumps(tests[:1]),
      "private_test_cases": packed.decode(),
      **more,
    }
  )
  assert item.reference["num_tests"] == len(tests)
  assert item.hidden.unpack() == tests
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
    # LiveCodeBench's runner imports these modules for every program.
    ("print(sum(map(float, deque(stdin.readline().split()))))", True),
    ("assert pow(2, 3, 5) == 3\nprint(sum(map(float, input().split())))", True),
    (
      "def total(n):\n  return n and 1 + total(n - 1)\nassert total(9000)\n"
      "print(sum(map(float, input().split())))",
      True,
    ),
    ("import numpy\nprint(3)", False),
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
  assert "class Solution" in item.question
  code = (
    "class Solution:\n  def join(self, a: List[int], b):\n"
    f"    return tuple({body})"
  )
  response = f"```python\n{code}\n```"
  grade = livecodebench.grade(executor, item, response).result(60)
  assert grade.correct == correct, grade


NUMBERS = " ".join(map(str, range(100_000)))  # 588,889 characters
DIGITS = "1" + "0" * 39_998 + "7"
NINES = "9" * 7000


@pytest.mark.parametrize(
  "code, test, correct",
  [
    ("print(*range(int(input())))", ("100000", NUMBERS), True),
    ("print(*range(1, 1 + int(input())))", ("100000", NUMBERS), False),
    ("print(10**39999 + 7)", ("", DIGITS), True),
    ("print(10**39999 + 8)", ("", DIGITS), False),
    ("print(int(input()) % 10)", (NINES, "9"), True),
    ("def g(n): return list(range(n))", ("3", "[0, 1, 2]"), True),
    (
      "def g(n): return list(range(n))",
      ("100000", f"[{NUMBERS.replace(' ', ',')}]"),
      True,
    ),
    (
      "def g(n): return list(range(1, n + 1))",
      ("100000", f"[{NUMBERS.replace(' ', ',')}]"),
      False,
    ),
    ("def g(n): return 10**n + 7", ("39999", DIGITS), True),
    ("def g(n): return 10**n + 8", ("39999", DIGITS), False),
    ("def g(n): return n % 10", (f"-{NINES}", "1"), True),
    ("def g(n): return float('nan')", ("1", "NaN"), False),
  ],
  ids=lambda value: value if isinstance(value, str) else "",
)
def test_outputs_and_integers_may_be_long(executor, code, test, correct):
  name = "g" if "def g" in code else None
  item = contest(
    [{"input": test[0], "output": test[1]}],
    metadata=json.dumps({"func_name": name}),
  )
  grade = livecodebench.submit(executor, item, code).result(60)
  assert grade.correct == correct, grade
  assert not grade.limit


def test_all_outputs_of_a_problem_may_be_longer_than_a_report(executor):
  tests = [
    {"input": f"{first}", "output": " ".join(map(str, range(first, 12_000)))}
    for first in range(20)
  ]
  code = "print(*range(int(input()), 12000))"
  grade = livecodebench.submit(executor, contest(tests), code).result(60)
  assert grade.correct, grade
  tests[-1]["output"] += "0"
  grade = livecodebench.submit(executor, contest(tests), code).result(60)
  assert (grade.correct, grade.detail) == (False, "19 of 20 tests")


def test_a_test_that_a_limit_ended_is_named(executor):
  item = contest([{"input": f"{i}", "output": "0"} for i in range(3)])
  code = "i = int(input())\nprint([0] * 10**9 if i == 1 else 0)"
  grade = livecodebench.submit(executor, item, code).result(60)
  assert grade.limit == "MemoryError"
  assert grade.detail == (
    "2 of 3 tests MemoryError; ended by a limit of the executor"
  )
  # The program fails before the limit, or for another reason.
  for wrong in ("print(1 if i == 0 else [0] * 10**9)", "print(1 // i)"):
    code = f"i = int(input())\n{wrong}"
    assert not livecodebench.submit(executor, item, code).result(60).limit


def test_a_pickle_of_anything_but_a_string_is_refused():
  packed = base64.b64encode(zlib.compress(pickle.dumps(print))).decode()
  with pytest.raises(pickle.UnpicklingError, match="expected a text"):
    livecodebench_files.unpack(packed)


def test_a_program_may_import_numpy_where_the_settings_have_it():
  code = (
    "import numpy as np\n"
    "print(np.array(input().split(), dtype=float).cumsum()[-1])"
  )
  with Executor(
    workers=1,
    **{
      key: value
      for key, value in settings.profile("benchmarks").items()
      if key != "profile"
    },
  ) as executor:
    assert executor.timeout_s == livecodebench.TIMEOUT_S
    grade = livecodebench.submit(executor, CONSOLE, code).result(120)
  assert grade.correct, grade


def test_the_variants_for_public_benchmarks_have_its_limits():
  for variant in ("full", "chat", "plain"):
    c = evaluate.get_config(variant)
    assert c.executor.timeout_s == livecodebench.TIMEOUT_S
    assert "numpy" in c.executor.libraries
    assert not any("User" in stop for stop in c.rollout.stop_strings)
  c = evaluate.get_config("average16")  # uses the grading of ORZ's reward
  assert c.executor.profile == orz.get_config("7b").executor.profile


@pytest.fixture
def folder(tmp_path):
  """Files 1 to 3, each with one problem per month from May 2023."""
  for file, name in enumerate(livecodebench_files.FILES[:3]):
    lines = [
      json.dumps(
        {
          "question_id": f"{file}-{month}",
          "question_content": "?",
          "contest_date": f"2023-{month:02}-17T00:00:00",
          "public_test_cases": "[]",
          "private_test_cases": json.dumps([{"input": "", "output": "1"}]),
        }
      )
      for month in (5, 6, 7)
    ]
    (tmp_path / name).write_text("\n".join(lines) + "\n")
  return tmp_path


def ids(data, **choice):
  chosen = livecodebench_files.ContestSettings(
    **({"release": "release_v3"} | choice)
  )
  items = livecodebench_files.read(str(data), **vars(chosen))
  return [item.id for item in items]


def test_a_release_is_its_first_files(folder, capsys):
  all_ids = [f"{file}-{month}" for file in range(3) for month in (5, 6, 7)]
  assert ids(folder) == all_ids
  assert "though the public release_v3 has 612" in capsys.readouterr().err
  assert ids(folder, release="release_v1") == all_ids[:3]
  assert ids(folder / "test3.jsonl") == all_ids[6:]
  assert ids(folder, first_date="2023-06-17", last_date="2023-06-30") == [
    "0-6",
    "1-6",
    "2-6",
  ]
  assert "though" not in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
  "choice, words",
  [
    ({"release": "release_v5"}, r"test4.jsonl', 'test5.jsonl'\] are missing"),
    ({"first_date": "2024-01-01"}, "from 2024-01-01 to any date"),
    ({"release": "v5"}, "release='v5': expected one of"),
    ({"last_date": "2024-1-1"}, "last_date='2024-1-1': expected YYYY-MM-DD"),
  ],
)
def test_what_a_release_lacks_is_named(folder, choice, words):
  with pytest.raises(ValueError, match=words):
    ids(folder, **choice)


def test_the_files_are_downloaded_without_a_loading_script(folder, monkeypatch):
  asked = []

  def download(repository, name, repo_type):
    asked.append((repository, name, repo_type))
    return str(folder / name)

  monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
  assert len(ids("", release="release_v2")) == 6
  assert asked == [
    (livecodebench_files.REPOSITORY, name, "dataset")
    for name in ("test.jsonl", "test2.jsonl")
  ]
  monkeypatch.undo()
  monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
  with pytest.raises(ValueError, match="--data=livecodebench=FOLDER") as caught:
    ids("")
  assert "\n" not in str(caught.value)


def test_a_data_set_with_a_loading_script_is_refused_in_a_line(monkeypatch):
  def load_dataset(*arguments, **options):
    raise RuntimeError("Dataset scripts are no longer supported,\nbut found x")

  fake = types.SimpleNamespace(load_dataset=load_dataset)
  monkeypatch.setitem(sys.modules, "datasets", fake)
  with pytest.raises(ValueError, match="otherwise pass a file") as caught:
    records.read("hf:someone/scripted:test")
  text = str(caught.value)
  assert text.startswith("hf:someone/scripted:test: RuntimeError: Dataset")
  assert "\n" not in text
  # A benchmark adds the flag that takes a file.
  options = ItemOptions("", 0, "full", 1)
  with pytest.raises(ValueError, match=r"--data=mbpp_plus=PATH$") as caught:
    items.items_of(registry.find("mbpp_plus"), options)
  assert str(caught.value).startswith("hf:evalplus/mbppplus:test: RuntimeError")


def test_records_do_not_repeat_the_tests():
  assert set(CONSOLE.reference) == {"function", "date", "num_tests"}
