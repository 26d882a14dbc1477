"""Questions stay held out in every source, and near duplicates are removed."""

import json

import pytest

from azr_jax.tasks.questions import duplicates, sources, splits
from azr_jax.tasks.questions import question as question_lib
from azr_jax.tasks.questions.question import Question

HELD_OUT = sources.HELD_OUT_SEED


@pytest.fixture(name="public")
def fixture_public(tmp_path):
  """Files of BIG-Bench Hard and SymBench with duplicate questions."""
  examples = [
    {"input": f"Is {n % 200} even?", "target": "Yes"} for n in range(250)
  ]
  bbh = tmp_path / "bbh" / "snarks.json"
  bbh.parent.mkdir()
  bbh.write_text(json.dumps({"examples": examples}))
  rows = [{"input": f"{n % 90} + 1?", "target": n} for n in range(100)]
  gsm = tmp_path / "symbench" / "gsmhardv2.jsonl"
  gsm.parent.mkdir()
  gsm.write_text("".join(json.dumps(row) + "\n" for row in rows))
  return tmp_path


def texts(spec, count, seed):
  return [question.text for question in sources.read(spec, count, seed)]


@pytest.mark.parametrize(
  "spec, distinct",
  [("bbh:{}/bbh", 200), ("symbench:{}/symbench/gsmhardv2.jsonl", 90)],
)
def test_a_public_file_has_a_part_that_no_other_seed_reads(
  public, spec, distinct
):
  spec = spec.format(public)
  held_out = set(texts(spec, 1000, HELD_OUT))
  trained_on = set(texts(spec, 1000, 0))
  assert not held_out & trained_on
  assert len(held_out) == distinct * 2 // 5
  assert len(trained_on) == distinct - len(held_out)
  # A smaller count never crosses the split.
  for count in (1, 7, 50):
    assert set(texts(spec, count, HELD_OUT)) <= held_out
    assert set(texts(spec, count, 1)) <= trained_on
    assert len(texts(spec, count, 1)) == min(count, len(trained_on))


def test_the_parts_do_not_depend_on_the_order_of_the_file(public):
  before = set(texts(f"bbh:{public}/bbh", 1000, HELD_OUT))
  path = public / "bbh" / "snarks.json"
  examples = json.loads(path.read_text())["examples"]
  path.write_text(json.dumps({"examples": examples[::-1]}))
  assert set(texts(f"bbh:{public}/bbh", 1000, HELD_OUT)) == before


def test_gridworld_of_a_folder_follows_the_seed(public):
  of_seed = [
    {t for t in texts(f"symbench:{public}/symbench", 5, seed) if "room" in t}
    for seed in (0, HELD_OUT)
  ]
  assert len(of_seed[0]) == len(of_seed[1]) == 5
  assert not of_seed[0] & of_seed[1]


@pytest.mark.parametrize(
  "first, second, are_alike",
  [
    ("What is  2 + 3?", "what is 2 + 3", True),
    ('Sort: "b", a.', "sort b a", True),
    ("\N{FULLWIDTH DIGIT TWO} * 3", "2 * 3", True),
    ("line\nline", "line line", True),
    ("What is 1.5?", "What is 15?", False),
    ("1, 23", "12, 3", False),
    ("2 - 3", "2 + 3", False),
    ("f(x).y", "f(x)y", False),
    ("-3", "3", False),
  ],
)
def test_near_duplicates_are_one_text_written_in_two_ways(
  first, second, are_alike
):
  assert (duplicates.key(first) == duplicates.key(second)) == are_alike
  pair = [Question(str(n), "t", t, "") for n, t in enumerate((first, second))]
  assert duplicates.distinct(pair) == pair[: 2 - are_alike]
  assert duplicates.distinct(pair, [duplicates.key(first)]) == (
    [] if are_alike else pair[1:]
  )


def test_a_split_is_read_by_its_name(tmp_path, monkeypatch):
  questions = [Question(f"t/{n}", "gym/gcd", f"{n}?", "'1'") for n in range(3)]
  folder = tmp_path / "questions"
  folder.mkdir()
  question_lib.write(splits.path_of(folder, "test"), questions)
  monkeypatch.chdir(tmp_path)
  assert sources.read("split:test", 9, HELD_OUT) == questions
  assert sources.read("split:test", 9, 0) == questions
  assert sources.read(f"split:{folder}/test", 2, 0) == questions[:2]
  assert sources.split("split:seen+split:test+gym:gcd") == [
    "split:seen",
    "split:test",
    "gym:gcd",
  ]
  with pytest.raises(
    ValueError, match="expected questions/train.jsonl; `python -m"
  ):
    sources.read("split:train", 9, 0)
  with pytest.raises(ValueError, match="split 'tset': expected one of"):
    sources.read("split:tset", 9, 0)
