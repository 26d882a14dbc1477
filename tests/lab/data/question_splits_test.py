"""Tests R1-CI's question files: sizes, overlap, sources, resuming."""

import dataclasses
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import urllib.request

import pytest
import training

from azr_jax.lab.data import public_questions, question_splits
from azr_jax.lab.data.question_splits import SplitSettings
from azr_jax.tasks.questions import catalogue, duplicates, gym, sources, splits
from azr_jax.tasks.questions import question as question_lib
from azr_jax.tasks.questions.symbench import layouts, reader

training.needs("reasoning_gym", extra="gym")

FIXTURES = pathlib.Path(__file__).parents[2] / "grading/fixtures/symbench"
SMALL = SplitSettings(train=8, sft=4, seen=4, test=6)
# Two of each collection are train tasks; the last one is a test task.
TASKS = ("gym/ab", "gym/tower_of_hanoi", "gym/gcd", "bbh/snarks", "bbh/ruin")


def write_bbh(folder):
  folder.mkdir(parents=True)
  shared = {"input": "Shared, by both?", "target": "Yes"}
  for name in ("snarks", "ruin_names"):
    examples = [
      {"input": f"{name} {n // 2}" + "?" * (n % 2), "target": "Yes"}
      for n in range(20)
    ]
    text = json.dumps({"examples": [shared, *examples]})
    (folder / f"{name}.json").write_text(text)


@pytest.fixture(name="data")
def fixture_data(tmp_path):
  write_bbh(tmp_path / "data" / "bbh")
  return tmp_path / "data"


def read(folder):
  return {
    name: question_lib.read(splits.path_of(folder, name))
    for name in splits.NAMES
  }


def test_a_collection_can_be_held_out(data, tmp_path, monkeypatch):
  """R1-CI, figure 13: BBH is out of distribution, and 107 others are not."""
  monkeypatch.setattr(question_splits, "TRAIN_TASKS", 2)
  build = question_splits.build
  made = build(SMALL, tmp_path / "q", TASKS, data, held_out="bbh")
  files = read(tmp_path / "q")
  tasks = {name: {q.task for q in files[name]} for name in files}
  assert tasks["test"] == {"bbh/snarks", "bbh/ruin_names"}
  assert len(tasks["train"]) == 2 and tasks["train"] == tasks["sft"]
  assert all(task.startswith("gym/") for task in tasks["train"])
  assert {*made.tasks} == tasks["test"] | tasks["train"]
  rows = question_splits.table(made).splitlines()
  held_out, nothing, trained = (
    next(row for row in rows if row.startswith(f"| {name} |"))
    for name in ("bbh, test", "bbh, train", "gym, train")
  )
  assert (
    held_out.startswith("| bbh, test | 2 |") and "| 0 | 0 | 0 |" in held_out
  )
  assert nothing.startswith("| bbh, train | 0 |")
  assert trained.startswith("| gym, train | 2 |")
  with pytest.raises(ValueError, match="held_out='bbx': expected one of"):
    build(SMALL, tmp_path / "r", TASKS, data, held_out="bbx")


def test_the_files_are_disjoint_and_as_large_as_the_tasks_allow(data, tmp_path):
  made = question_splits.build(SMALL, tmp_path / "q", TASKS, data)
  files = read(tmp_path / "q")
  keys = [duplicates.key(q.text) for file in files.values() for q in file]
  assert len(keys) == len(set(keys)) and question_splits.overlap(files) == 0
  for name, questions in files.items():
    wanted = "test" if name == "test" else "train"
    for question in questions:
      assert catalogue.tasks()[question.task].split == wanted
  assert made.tasks["gym/ab"] == {
    "found": 16,
    "duplicates": 0,
    "train": 8,
    "sft": 4,
    "seen": 4,
    "test": 0,
  }
  # 10 of the 21 questions are kept, and 4:4:8 makes 2, 2 and the rest. The one
  # that both tasks share stays in the test task.
  assert made.tasks["bbh/snarks"] == {
    "found": 21,
    "duplicates": 11,
    "train": 6,
    "sft": 2,
    "seen": 2,
    "test": 0,
  }
  assert made.tasks["bbh/ruin_names"]["duplicates"] == 10
  assert made.tasks["bbh/ruin_names"]["test"] == 6
  assert len(made.missing) == 144 - 5 and "gym/gcd" not in made.missing
  missing = question_splits.missing(made)
  assert missing.endswith("bbh/word_sorting, all 33 of symbench")
  assert missing.count("gym/") == 84 - 3 and "gym/gcd" not in missing
  table = question_splits.table(made).splitlines()
  assert "| bbh, train | 1 | 21 | 11 | 6 | 2 | 2 | 0 |" in table
  assert "| symbench, test | 0 | 0 | 0 | 0 | 0 | 0 | 0 |" in table


def test_hashes_are_of_the_files_and_a_second_build_has_the_same(
  data, tmp_path
):
  made = question_splits.build(SMALL, tmp_path / "a", TASKS, data)
  again = question_splits.build(SMALL, tmp_path / "b", TASKS, data)
  assert made.files == again.files
  manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
  for name, facts in manifest["files"].items():
    content = (tmp_path / "a" / f"{name}.jsonl").read_bytes()
    assert facts["sha256"] == hashlib.sha256(content).hexdigest()
    assert facts["questions"] == content.count(b"\n")
  other = dataclasses.replace(SMALL, seed=1)
  moved = question_splits.build(other, tmp_path / "c", TASKS, data)
  assert moved.files["train"]["sha256"] != made.files["train"]["sha256"]


def test_a_build_goes_on_where_it_was_interrupted(tmp_path, monkeypatch):
  tasks = ("gym/ab", "gym/products")
  expected = question_splits.build(SMALL, tmp_path / "whole", tasks)
  generate, asked = gym.generate, []

  def interrupted(name, count, seed):
    asked.append(name)
    if len(asked) == 2:
      raise KeyboardInterrupt
    yield from generate(name, count, seed)

  monkeypatch.setattr(gym, "generate", interrupted)
  with pytest.raises(KeyboardInterrupt):
    question_splits.build(SMALL, tmp_path / "part", tasks)
  assert not splits.path_of(tmp_path / "part", "train").exists()
  made = question_splits.build(SMALL, tmp_path / "part", tasks)
  assert asked == ["ab", "products", "products"]
  assert made.files == expected.files


def test_what_a_generator_repeats_is_counted(tmp_path, monkeypatch):
  def generate(name, count, seed):
    for number in range(count):
      text = f"Is {number // 3} {'EVEN' if number % 3 else 'even'}?"
      yield question_lib.Question(f"{number}", f"gym/{name}", text, "yes")

  monkeypatch.setattr(gym, "generate", generate)
  for _ in range(2):  # The second build reads the pool of the first one.
    made = question_splits.build(SMALL, tmp_path, ("gym/ab",))
    # The sixteenth distinct question is the 46th, so 30 are dropped.
    assert made.tasks["gym/ab"]["found"] == 46
    assert made.tasks["gym/ab"]["duplicates"] == 30
    assert sum(len(file) for file in read(tmp_path).values()) == 16


def archive_of(folder):
  """Returns the bytes of an archive as GitHub makes it."""
  data = io.BytesIO()
  with tarfile.open(fileobj=data, mode="w:gz") as archive:
    archive.add(folder, "Name-9ee07bd/bbh")
    archive.add(folder, "Name-9ee07bd/other")
  return data.getvalue()


def test_public_files_are_downloaded_once(data, tmp_path, monkeypatch):
  content, urls = archive_of(data / "bbh"), []

  def opened(url, timeout):
    assert timeout > 0
    urls.append(url)
    return io.BytesIO(content)

  monkeypatch.setattr(urllib.request, "urlopen", opened)
  tasks = ("bbh/snarks", "bbh/ruin")
  made = question_splits.build(SMALL, tmp_path / "a", tasks)
  assert question_splits.build(SMALL, tmp_path / "a", tasks).files == made.files
  bbh = public_questions.COLLECTIONS["bbh"]
  assert urls == [bbh.url] and bbh.commit in bbh.url
  given = question_splits.build(SMALL, tmp_path / "b", tasks, data)
  assert given.files == made.files


def test_what_cannot_be_had_is_named_with_what_to_pass(tmp_path, monkeypatch):
  def refused(url, timeout):
    raise OSError("Name or service not known")

  monkeypatch.setattr(urllib.request, "urlopen", refused)
  with pytest.raises(ValueError) as error:
    question_splits.build(SMALL, tmp_path, ("bbh",))
  for words in (
    "bbh cannot be downloaded (Name or service not known)",
    "--data=DIR with the folder 'bbh' of github.com/suzgunmirac/BIG-Bench-Hard",
    "--tasks=",
  ):
    assert words in str(error.value)
  write_bbh(tmp_path / "data" / "bbh")
  with pytest.raises(ValueError, match="no questions of .*bbh/navigate"):
    question_splits.build(SMALL, tmp_path, ("bbh",), tmp_path / "data")
  with pytest.raises(ValueError, match="task 'gmy/': expected some of"):
    question_splits.build(SMALL, tmp_path, ("gmy/",))


@pytest.mark.parametrize("member", ["x/bbh/../../escape.json", "x/other/a"])
def test_an_archive_of_another_kind_leaves_nothing(
  tmp_path, monkeypatch, member
):
  data = io.BytesIO()
  with tarfile.open(fileobj=data, mode="w:gz") as archive:
    archive.addfile(tarfile.TarInfo(member))
  monkeypatch.setattr(
    urllib.request, "urlopen", lambda *_, **__: io.BytesIO(data.getvalue())
  )
  bbh = public_questions.COLLECTIONS["bbh"]
  with pytest.raises(ValueError, match="bbh cannot be downloaded"):
    public_questions.locate(bbh, [], tmp_path)
  assert not (tmp_path / "bbh").exists()
  assert not list(tmp_path.rglob("escape*"))


def unpacked(file, folder):
  """Writes a packed data set in the public layout."""
  for line in file.read_text().splitlines():
    row = json.loads(line)
    for name, text in row["files"].items():
      path = folder / file.stem / row["sample"] / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(text)


def test_both_layouts_of_symbench_give_the_same_questions(tmp_path):
  for file in FIXTURES.glob("*.jsonl"):
    rows = layouts.rows(file)
    if "files" in rows[0]:
      unpacked(file, tmp_path)
  math = tmp_path / "MATH" / "train" / "geometry"
  math.mkdir(parents=True)
  for row in layouts.rows(FIXTURES / "MATH_train_geometry.jsonl"):
    (math / row["file"]).write_text(json.dumps(dict(row)))
  game = tmp_path / "game24_dataset" / "24" / "24.csv"
  game.parent.mkdir(parents=True)
  game.write_bytes((FIXTURES / "24__24.csv").read_bytes())

  def texts(questions):
    return sorted((q.task, q.text, q.reference) for q in questions)

  left_out = ("symbench/gsm", "symbench/math_counting_and_probability")
  packed = [q for q in reader.read(FIXTURES) if q.task not in left_out]
  assert texts(reader.read(tmp_path)) == texts(packed)
  assert len({q.task for q in packed}) == 30


def test_a_split_trains_on_nothing_that_it_is_scored_on(data, tmp_path):
  question_splits.build(SMALL, tmp_path / "q", TASKS, data)
  trained = sources.read_all((f"split:{tmp_path}/q/train",), 1000, 0)
  spec = sources.held_out((f"split:{tmp_path}/q/train",))
  scored = sources.read_all(sources.split(spec), 1000, sources.HELD_OUT_SEED)
  assert {q.task for q in scored} == {"gym/gcd", "bbh/ruin_names"}
  assert not {q.task for q in scored} & {q.task for q in trained}


@pytest.mark.slow
def test_the_command_makes_the_same_files_in_every_process(tmp_path):
  """These data sets use Python's global generator or iterate over sets."""
  files = []
  for seed in ("1", "2"):
    out = tmp_path / seed
    done = subprocess.run(
      [sys.executable, "-m", "azr_jax.data.build_questions", f"--out={out}"]
      + ["--train=2", "--sft=1", "--seen=1", "--test=4"]
      + ["--tasks=gym/list_functions,gym/isomorphic_strings,gym/ransom_note"],
      env=os.environ | {"PYTHONHASHSEED": seed},
      cwd=pathlib.Path(__file__).parents[3],
      capture_output=True,
      text=True,
      check=True,
    )
    assert "0 questions in two places" in done.stdout
    files.append(
      {name: splits.path_of(out, name).read_bytes() for name in splits.NAMES}
    )
  assert files[0] == files[1]
