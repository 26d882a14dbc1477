"""Generated puzzles, their files, worked solutions and the corpus."""

import itertools
import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from azr_jax.corpora import countdown as corpus
from azr_jax.corpora import countdown_solutions
from azr_jax.grading import countdown as verifier
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.models import tokenizers
from azr_jax.tasks.countdown import (
  dataset,
  difficulty,
  generator,
  prompts,
  proposals,
  solver,
)

SETTINGS = corpus.CorpusSettings(
  seed=0,
  count=300,
  prompt_style="compact",
  style_shares=(1.0, 1.0, 1.0, 1.0),
  try_share=0.5,
  propose_share=0.2,
  references=2,
)


def test_splits_share_no_puzzle_in_any_order():
  train = [p for p, _ in generator.generate(0, 600)]
  test = [p for p, _ in generator.generate(0, 60, test=True)]
  assert len({p.key for p in train}) == 600
  assert not {p.key for p in train} & {p.key for p in test}
  for puzzle in train[:50]:
    for order in itertools.permutations(puzzle.numbers):
      assert not generator.is_test(Puzzle(order, puzzle.target))
  assert {len(p.numbers) for p in train} == {3, 4}
  found = difficulty.score_puzzles(train)
  assert np.all((found >= 0) & (found <= 1))


def test_a_longer_draw_begins_like_a_shorter_one():
  short, longer = generator.generate(3, 20), generator.generate(3, 40)
  assert list(short) == list(longer)[:20]


def test_the_dataset_is_built_and_read_with_labels(tmp_path):
  arguments = dict(seed=0, train=90, test=12, data_dir=tmp_path)
  puzzles, scores = dataset.load(**arguments, split="train")
  assert [p.key for p in puzzles] != sorted(p.key for p in puzzles)
  assert {p.key for p in puzzles} == {
    p.key for p, _ in generator.generate(0, 90)
  }
  np.testing.assert_allclose(
    scores, difficulty.score_puzzles(puzzles), atol=1e-6
  )
  counts = np.bincount(
    difficulty.buckets(scores, difficulty.thresholds(scores))
  )
  assert counts.min() >= 25
  again, _ = dataset.load(**arguments, split="train")
  assert again == puzzles
  assert len(dataset.load(**arguments, split="test")[0]) == 12


@pytest.mark.parametrize(
  "name", ["puzzles.jsonl", "puzzles.json", "puzzles.parquet"]
)
def test_public_files_are_read_without_what_has_no_solution(tmp_path, name):
  path = tmp_path / name
  puzzles = [Puzzle((1, 2, 3), 6), Puzzle((1, 1, 1), 99)]
  if name.endswith("jsonl"):
    dataset.write(path, puzzles)
  else:
    records = [{"nums": p.numbers, "target": p.target} for p in puzzles]
    path.write_text(json.dumps(records))
    if name.endswith("parquet"):
      parquet.write_table(pyarrow.Table.from_pylist(records), path)
  found, scores = dataset.read(path)
  assert found == puzzles[:1] and scores.shape == (1,)
  path = tmp_path / "empty.json"
  path.write_text("[]")
  with pytest.raises(ValueError, match="expected"):
    dataset.read(path)


@pytest.mark.parametrize("style", countdown_solutions.STYLES)
def test_worked_solutions_hold_to_the_rules(style):
  rng = np.random.default_rng(0)
  dead_ends = 0
  for puzzle, _ in generator.generate(1, 60):
    (paths,) = solver.natural_paths(
      np.array([puzzle.numbers]), np.array([puzzle.target])
    )
    term = countdown_solutions.choose_path(puzzle, paths, rng)
    if term is None:
      continue
    thinking = countdown_solutions.write(puzzle, term, style, 0.6, rng)
    answer = countdown_solutions.answer(term)
    assert thinking.endswith("yes")
    dead_ends += thinking.count(" no ")
    reply = prompts.reply(thinking, answer)
    assert verifier.verify(puzzle, reply).right
    for word in thinking.split():
      left, equals, right = word.partition("=")
      if equals:
        assert eval(left) == int(right) <= countdown_solutions.LARGEST
    for step in countdown_solutions.steps(term):
      assert step.result == eval(f"{step.left}{step.operator}{step.right}")
  assert (dead_ends > 20) == (style in ("search", "guess"))


def test_the_corpus_solves_and_proposes_and_keeps_off_the_test_split():
  pairs = list(corpus.conversations(SETTINGS))
  assert pairs == list(corpus.conversations(SETTINGS))
  proposed = [pair for pair in pairs if pair[0].startswith("propose")]
  assert len(pairs) == 300 and 30 < len(proposed) < 90
  for _, reply in proposed:
    puzzle = prompts.parse_proposal(reply, "compact")
    assert proposals.rejection(puzzle, ()) is None
  for prompt, reply in pairs:
    if prompt.startswith("solve"):
      puzzle = prompts.parse_proposal(f"<answer>{prompt}</answer>", "full")
      assert verifier.verify(puzzle, reply).right
      assert not generator.is_test(puzzle)


def test_every_digit_and_marker_is_a_token_of_its_own(tmp_path):
  pairs = list(corpus.conversations(SETTINGS))
  path = corpus.train_tokenizer((p + r for p, r in pairs), tmp_path)
  tokenizer = tokenizers.SentencePieceTokenizer(path)
  assert tokenizer.vocab_size <= corpus.VOCAB_SIZE
  ids = tokenizer.encode("solve [63 92 999] 75\n<think>")
  pieces = ["solve [", *"63", " ", *"92", " ", *"999", "] ", *"75", "\n<think>"]
  assert len(ids) == len(pieces)
  for prompt, reply in pairs[:50]:
    assert tokenizer.decode(tokenizer.encode(prompt + reply)) == prompt + reply
