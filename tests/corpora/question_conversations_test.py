"""Conversations with code are correct, and only assistant turns are trained on.

The executor runs their scripts, so the shown tool outputs are real.
"""

import numpy as np
import pytest
import training
from letters import Letters
from typed import present

from azr_jax.configs import code_interpreter
from azr_jax.corpora import questions as corpus
from azr_jax.corpora.corpus import Conversation
from azr_jax.executor import scripts
from azr_jax.grading.gym import grader
from azr_jax.systems.code_interpreter import self_checks
from azr_jax.tasks.questions import sources
from azr_jax.tools import code_blocks, python_tool

training.needs("reasoning_gym", extra="gym")


TASKS = (
  *code_interpreter.TINY_QUESTIONS,
  "gym:count_primes(min_n=1, max_n=30)",
  "gym:fraction_simplification(styles=('plain',))",
)


@pytest.mark.parametrize("spec", TASKS)
@pytest.mark.parametrize("style", [*corpus.SOLUTION_STYLES, "mistake"])
def test_conversations_are_correct_and_show_the_output_of_their_code(
  executor, spec, style
):
  answers, references = [], []
  for question in sources.read(spec, 6, 4):
    if style == "mistake":
      turns = corpus.write_turns(question, "code", correct=False)
    else:
      turns = corpus.write_turns(question, style)
    assert len(turns) == {"text": 1, "check": 5}.get(style, 3)
    for index in range(0, len(turns), 2):
      is_last = index == len(turns) - 1
      assert code_blocks.is_well_formed(turns[index], is_last)
    answers.append(code_blocks.find_answer(turns[-1]))
    references.append(grader.stored_answer(question.reference))
    for turn, shown in zip(turns[::2], turns[1::2], strict=False):
      block = present(code_blocks.find_tool_call(turn))
      result = executor.submit(scripts.script_job(block.code)).result(30)
      text = python_tool.output_text(scripts.read_result(result), 3.0)
      assert (
        shown == f"{code_blocks.OUTPUT_PREFIX}{text}{code_blocks.OUTPUT_SUFFIX}"
      )
    assert self_checks.has_self_check(turns) == (style == "check")
  correct = sum(map(str.__eq__, answers, references))
  # A wrong script may return the right number by chance.
  assert correct < 3 if style == "mistake" else correct == len(references)


def test_a_source_has_as_many_correct_scripts_as_is_wished():
  settings = corpus.QuestionCorpusSettings(
    count=400,
    sources=("gym:products+gym:lcm",),
    correct_probs=(0.2, 1.0),
    style_weights=(0.0, 1.0, 0.0),
    free_prob=1.0,
  )
  wrong = [
    ("+" in c.turns[0], "max(" in c.turns[0])
    for c in corpus.conversations(**vars(settings))
  ]
  products, multiples = (
    np.mean(wrong[:400], axis=0)[0],
    np.mean(wrong, axis=0)[1],
  )
  assert 0.7 < products < 0.9 and multiples == 0


def test_requested_and_solution_styles_are_mixed_by_their_weights():
  settings = corpus.QuestionCorpusSettings(
    0,
    200,
    ("gym:gcd", "gym:lcm"),
    style_weights=(1.0, 1.0, 0.0),
    free_prob=0.5,
  )
  conversations = list(corpus.conversations(**vars(settings)))
  assert conversations == list(corpus.conversations(**vars(settings)))
  for style, num_turns in (("text", 1), ("code", 3)):
    of_form = [
      one for one in conversations if one.prompt.splitlines()[-1] == style
    ]
    assert 0.15 < len(of_form) / len(conversations) < 0.35
    assert {len(one.turns) for one in of_form} == {num_turns}
  free = [one for one in conversations if one.prompt.count("\n") == 1]
  assert 0.4 < np.mean([len(one.turns) == 1 for one in free]) < 0.6


def test_the_loss_mask_covers_assistant_turns_and_the_end():
  conversation = Conversation("ab", ("cd", "!!", "e"))
  ids, loss_mask = conversation.tokens(Letters())
  assert "".join(map(chr, ids[:-1])) == "abcd!!e" and ids[-1] == 0
  trained_on = [chr(i) for i, m in zip(ids, loss_mask, strict=True) if m]
  assert trained_on == [*"cde", "\0"]
