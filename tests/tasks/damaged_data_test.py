"""Damaged data files are rejected with a one-line error that names the file."""

import codecs
import csv
import gzip
import importlib
import io
import json

import damage
import pytest

from azr_jax.config import user_files
from azr_jax.corpora import demonstrations
from azr_jax.corpora.programs import heldout
from azr_jax.evals import items, registry
from azr_jax.lab.data import select_problems
from azr_jax.tasks import records
from azr_jax.tasks.countdown import puzzle_files
from azr_jax.tasks.mathematics import sources
from azr_jax.tasks.programs import seed_files
from azr_jax.tasks.questions import bbh, pass_rates, question

PROBLEM = {"question": "What is 1 + 2?", "answer": "3"}
PROGRAM = {"id": "1", "code": "def f(x):\n  return x", "input": "3"}
PROGRAM = PROGRAM | {"output": "3"}


def problems(count=12):
  return [PROBLEM | {"question": f"What is {n} + 2?"} for n in range(count)]


def lines(rows):
  return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_csv(rows):
  text = io.StringIO()
  writer = csv.DictWriter(text, rows[0].keys())
  writer.writeheader()
  writer.writerows(rows)
  return text.getvalue().encode()


def as_parquet(rows):
  pyarrow = pytest.importorskip("pyarrow", reason="to write Parquet")
  from pyarrow import parquet

  file = io.BytesIO()
  parquet.write_table(pyarrow.Table.from_pylist(rows), file)
  return file.getvalue()


FORMATS = {
  "jsonl": lines,
  "json": lambda rows: json.dumps(rows, indent=1).encode(),
  "csv": as_csv,
  "parquet": as_parquet,
  "jsonl.gz": lambda rows: gzip.compress(lines(rows), mtime=0),
  "csv.gz": lambda rows: gzip.compress(as_csv(rows), mtime=0),
}


@pytest.mark.parametrize("ending", FORMATS)
def test_records_of_every_format(tmp_path, ending):
  path = tmp_path / f"problems.{ending}"
  data = FORMATS[ending](problems())
  path.write_bytes(data)
  assert len(sources.read(str(path))) == 12
  if ending in ("jsonl", "json", "csv"):
    path.write_bytes(codecs.BOM_UTF8 + data)
    assert sources.read(str(path))[0].question == "What is 0 + 2?"
  damaged = damage.variants(data)
  if not ending.endswith(".gz") and ending != "parquet":
    # Half of a file still has valid lines; nothing tells how many are missing.
    damaged = [(name, data, not data) for name, data, _ in damaged]
  assert damage.check(path, damaged, lambda: sources.read(str(path))) > 8


def demonstration():
  values = {"turns": ["one", "result", "two"], "prompt": "Ask", "task": "t"}
  return {name: values.get(name, name) for name in demonstrations._FIELDS}


# Name -> a reader of a line-based format, and a record.
LINES = {
  "problems": (lambda p: sources.read(str(p)), PROBLEM),
  "puzzles": (puzzle_files.read, {"nums": [1, 2, 3, 4], "target": 10}),
  "programs": (lambda p: seed_files.read(str(p)), PROGRAM),
  "questions": (
    question.read,
    {"id": "1", "task": "gym/x", "text": "?", "reference": "1"},
  ),
  "pass rates": (
    pass_rates.read,
    {"id": "q", "num_correct": 1, "num_samples": 2},
  ),
  "demonstrations": (demonstrations.read, demonstration()),
  "evaluation": (
    lambda p: select_problems.of_records([str(p)]),
    {"question": "?", "reference": {"answer": "3"}, "correct": [True, False]},
  ),
  "tasks": (
    heldout.read,
    {
      "task_type": "deduction",
      "task": {"code": "c", "input": "1", "output": "2"},
    },
  ),
}


@pytest.mark.parametrize("name", LINES)
def test_lines_of_other_types_and_cut_lines(tmp_path, name):
  read, line = LINES[name]
  path = tmp_path / "file.jsonl"
  path.write_bytes(lines([line]))
  plain = repr(read(path))
  path.write_bytes(codecs.BOM_UTF8 + lines([line]))
  assert repr(read(path)) == plain
  damaged = [
    (case, data + b"\n", False) for case, data, _ in damage.json_variants(line)
  ]
  assert damage.check(path, damaged, lambda: read(path)) > 8
  whole = lines([line] * 3)
  cut = [(f"cut at {n}", whole[:n], False) for n in range(0, len(whole), 7)]
  assert damage.check(path, cut, lambda: read(path)) > 3


def test_a_damaged_file_of_big_bench_hard(tmp_path):
  path = tmp_path / "snarks.json"
  examples = [{"input": f"{n}?", "target": "(A)"} for n in range(9)]
  data = json.dumps({"canary": "x", "examples": examples}).encode()
  path.write_bytes(data)
  assert len(bbh.read(tmp_path)) == 9
  damaged = damage.variants(data)
  assert damage.check(path, damaged, lambda: bbh.read(path)) > 8
  changed = damage.json_variants(json.loads(data))
  assert damage.check(path, changed, lambda: bbh.read(path)) > 8


# Benchmark -> a record as in its public data.
BENCHMARKS = {
  "gsm8k": {"question": "?", "answer": "1 + 1\n#### 2"},
  "math500": {"problem": "?", "answer": "2"},
  "minerva": {"problem": "?", "solution": "It is \\boxed{2}."},
  "olympiadbench": {
    "question": "?",
    "final_answer": ["2"],
    "language": "English",
  },
  "mmlu_pro": {"question": "?", "options": ["a", "b"], "answer": "A"},
  "gpqa": {
    "Question": "?",
    "Correct Answer": "a",
    **{f"Incorrect Answer {n}": str(n) for n in (1, 2, 3)},
  },
  "humaneval": {
    "task_id": "1",
    "prompt": "def f(x):\n",
    "entry_point": "f",
    "test": "def check(f):\n  assert f(1) == 1",
  },
  "humaneval_plus": {
    "task_id": "1",
    "prompt": "def f(x):\n",
    "entry_point": "f",
    "base_input": [[1]],
    "plus_input": [[2]],
    "canonical_solution": "  return x",
  },
  "mmlu": {"question": "?", "choices": ["a", "b"], "answer": 1, "subject": "s"},
  "mbpp": {"task_id": 1, "text": "Write f", "test_list": ["assert f(1)"]},
  "cruxeval_o": PROGRAM,
  "cruxeval_i": PROGRAM,
  "livecodebench": {
    "question_id": "1",
    "question_content": "?",
    "public_test_cases": '[{"input": "1", "output": "2"}]',
    "private_test_cases": "",
    "metadata": "{}",
  },
  "livecodebench_execution": PROGRAM,
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_record_of_a_benchmark_with_other_values(tmp_path, name):
  record = BENCHMARKS[name]
  path = tmp_path / "data.jsonl"

  def read():
    items._read_items(registry.BENCHMARKS[name], str(path), [].append)

  path.write_bytes(lines([record]))
  read()
  damaged = [
    (case, data + b"\n", False)
    for case, data, _ in damage.json_variants(record)
  ]
  assert damage.check(path, damaged, read) > 4


def test_an_answer_that_is_no_number_is_refused(tmp_path):
  path = tmp_path / "problems.jsonl"
  for word in ("NaN", "Infinity", "-Infinity", "1e999"):
    path.write_text(f'{{"question": "?", "answer": {word}}}\n')
    with pytest.raises(ValueError, match=f"line 1: .*finite.*{word}"):
      sources.read(str(path))
  path.write_text('{"question": "?", "answer": 1e300}\n')
  assert sources.read(str(path))


def test_a_gzip_bomb_is_refused_before_it_is_unpacked(tmp_path):
  path = tmp_path / "bomb.jsonl.gz"
  with gzip.open(path, "wb", compresslevel=9) as file:
    for _ in range(100):
      file.write(bytes(1 << 20))
  with pytest.raises(ValueError, match="bomb.*more than 67108864 bytes in"):
    records.read(str(path))
  text = lines(problems(2000))
  assert user_files.unzip(gzip.compress(text)) == text


def test_nested_json_is_refused_and_does_not_end_the_process():
  for text in ("[" * 10**6, '{"a":' * 10**6, "[" * 10**6 + "]" * 10**6):
    with pytest.raises(ValueError):
      user_files.parse_json(text)


def test_half_of_a_pair_is_refused():
  assert user_files.parse_json(r'"\ud83d\ude00"') == "\U0001f600"
  for text in (r'"\ud83d"', r'{"\uDE00": 1}', r'["a", ["\ud83dx"]]'):
    with pytest.raises(ValueError):
      user_files.parse_json(text)


def test_missing_packages_and_files_keep_their_errors(tmp_path):
  with pytest.raises(FileNotFoundError):
    user_files.read_json(tmp_path / "nothing.json")
  with pytest.raises(ImportError):
    with user_files.reading("file", "x"):
      importlib.import_module("nosuch_package")
  with pytest.raises(ValueError, match="^file: expected x .IndexError: list"):
    with user_files.reading("file", "x"):
      [][1]
