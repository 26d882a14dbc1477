"""Countdown conversations: solution styles, the mix, and the tokenizer."""

import dataclasses

import numpy as np
import pytest
from typed import present

from azr_jax.corpora import countdown, countdown_solutions
from azr_jax.grading import countdown as verifier
from azr_jax.models import tokenizers
from azr_jax.tasks.countdown import generator, prompts, proposals, solver

SETTINGS = countdown.CountdownCorpusSettings(
  seed=0,
  count=300,
  prompt_format="compact",
  style_weights=(1.0, 1.0, 1.0, 1.0, 1.0, 0.0),
  incorrect_try_prob=0.5,
  propose_prob=0.2,
  references=2,
)


@pytest.fixture(scope="module")
def pairs():
  return list(countdown.conversations(**vars(SETTINGS)))


@pytest.fixture(scope="module")
def solved_puzzles():
  puzzles = [puzzle for puzzle, _ in generator.generate(1, 60)]
  solved = []
  for puzzle in puzzles:
    (solutions,) = solver.natural_solutions(
      np.array([puzzle.numbers]), np.array([puzzle.target])
    )
    term = countdown_solutions.choose_solution(
      puzzle, solutions, np.random.default_rng(0)
    )
    if term is not None:
      solved.append((puzzle, term))
  return solved


@pytest.mark.parametrize("style", countdown_solutions.SOLUTION_STYLES)
def test_chains_of_thought_are_correct(style, solved_puzzles):
  rng = np.random.default_rng(0)
  dead_ends = 0
  for puzzle, term in solved_puzzles:
    thinking = countdown_solutions.format_solution(
      puzzle, term, style, 0.6, rng
    )
    answer = countdown_solutions.format_answer(term, style)
    assert thinking.endswith("yes") != (style == "answer_only")
    dead_ends += thinking.count(" no ")
    score = verifier.verify(puzzle, prompts.format_response(thinking, answer))
    assert score.correct != (style == "value")
    assert score.value > verifier.NO_ANSWER_SCORE
    for word in thinking.split():
      left, equals, right = word.partition("=")
      if equals:
        assert eval(left) == int(right) <= countdown_solutions.MAX_VALUE
    for step in countdown_solutions.list_steps(term):
      assert step.result == eval(f"{step.left}{step.operator}{step.right}")
  assert (dead_ends > 20) == (style in ("search", "guess", "value"))


def test_a_dead_end_never_begins_with_the_correct_step():
  # 2 + 3 is the correct step in either order.
  for step in (
    countdown_solutions.Step(2, "+", 3, 5),
    countdown_solutions.Step(3, "+", 2, 5),
  ):
    rng = np.random.default_rng(0)
    for _ in range(200):
      dead_end = countdown_solutions._dead_end([2, 3, 20], step, 100, rng)
      assert dead_end is not None
      assert dead_end.split()[0] not in ("2+3=5", "3+2=5")


def test_the_same_seed_gives_the_same_corpus(pairs):
  assert pairs == list(countdown.conversations(**vars(SETTINGS)))


def test_the_corpus_solves_and_proposes_puzzles_of_the_training_split(pairs):
  proposed = [pair for pair in pairs if pair[0].startswith("propose")]
  assert len(pairs) == 300 and 30 < len(proposed) < 90
  for _, response in proposed:
    puzzle = prompts.parse_proposal(response, "compact")
    assert proposals.rejection(puzzle, ()) is None
  for prompt, response in pairs:
    if prompt.startswith("solve"):
      puzzle = present(
        prompts.parse_proposal(f"<answer>{prompt}</answer>", "full")
      )
      assert verifier.verify(puzzle, response).correct
      assert not generator.is_test(puzzle)


@pytest.mark.parametrize("size", generator.COUNTS)
def test_the_corpus_has_puzzles_of_the_chosen_sizes_alone(size):
  settings = dataclasses.replace(
    SETTINGS, count=40, sizes=(size,), propose_prob=0.0
  )
  for prompt, _ in countdown.conversations(**vars(settings)):
    puzzle = present(
      prompts.parse_proposal(f"<answer>{prompt}</answer>", "full")
    )
    assert len(puzzle.numbers) == size


def test_the_style_value_answers_with_the_target():
  weights = (0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
  settings = dataclasses.replace(
    SETTINGS, count=20, style_weights=weights, propose_prob=0.0
  )
  for prompt, response in countdown.conversations(**vars(settings)):
    puzzle = present(
      prompts.parse_proposal(f"<answer>{prompt}</answer>", "full")
    )
    assert response.endswith(f"<answer>{puzzle.target}</answer>")


def test_every_digit_and_marker_is_a_token(pairs, tmp_path):
  path = countdown.train_tokenizer((p + r for p, r in pairs), tmp_path)
  tokenizer = tokenizers.SentencePieceTokenizer(path)
  assert tokenizer.vocab_size <= countdown.VOCAB_SIZE
  ids = tokenizer.encode("solve [63 92 999] 75\n<think>")
  pieces = ["solve [", *"63", " ", *"92", " ", *"999", "] ", *"75", "\n<think>"]
  assert len(ids) == len(pieces)
  for prompt, response in pairs[:50]:
    text = prompt + response
    assert tokenizer.decode(tokenizer.encode(text)) == text
