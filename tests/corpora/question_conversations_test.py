"""Worked conversations with code, and what is measured of questions."""

import contextlib
import io

import numpy as np
import pytest

from azr_jax.corpora import questions as corpus
from azr_jax.corpora.corpus import Conversation
from azr_jax.curricula.improvement_potential import Measured
from azr_jax.executor import scripts
from azr_jax.grading.gym import grader
from azr_jax.rollout import code_blocks, python_tool
from azr_jax.tasks.questions import measured, prompts, question, sources
from configs import code_interpreter

pytest.importorskip("reasoning_gym")


@pytest.mark.parametrize("spec", code_interpreter.TINY_QUESTIONS)
@pytest.mark.parametrize("manner", corpus.MANNERS)
def test_conversations_are_right_and_show_what_their_code_prints(
  executor, spec, manner
):
  for one in sources.read(spec, 6, 4):
    spoken = corpus.write(one, manner)
    assert len(spoken) == {"text": 1, "code": 3, "check": 5}[manner]
    for place in range(0, len(spoken), 2):
      last = place == len(spoken) - 1
      assert code_blocks.is_well_formed(spoken[place], last)
    gold = grader.stored_answer(one.reference)
    assert code_blocks.find_answer(spoken[-1]) == gold
    for reply, result in zip(spoken[::2], spoken[1::2], strict=False):
      block = code_blocks.block_to_run(reply)
      ran = executor.submit(scripts.script_job(block.code)).result(30)
      text = python_tool.result_text(scripts.read_result(ran), 3.0)
      assert result == f"{code_blocks.LABEL}{text}{code_blocks.AFTER}"
    assert code_blocks.checks_itself(spoken[::2]) == (manner == "check")


def test_shares_of_manners_and_forms():
  settings = corpus.CorpusSettings(
    0, 200, ("gym:gcd", "gym:lcm"), (1.0, 1.0, 0.0), 0.5
  )
  found = list(corpus.conversations(settings))
  assert found == list(corpus.conversations(settings))
  asked = [one.prompt.splitlines()[-1] for one in found]
  for form in ("text", "code"):
    own = [one for one, end in zip(found, asked, strict=True) if end == form]
    assert 0.15 < len(own) / len(found) < 0.35
    assert {len(one.parts) for one in own} == {1 if form == "text" else 3}
  free = [one for one in found if one.prompt.count("\n") == 1]
  assert 0.4 < np.mean([len(one.parts) == 1 for one in free]) < 0.6


def test_only_the_models_parts_are_learned():
  one = Conversation("ab", ("cd", "!!", "e"))
  ids, learned = one.tokens(lambda text: list(map(ord, text)), 0)
  assert "".join(map(chr, ids[:-1])) == "abcd!!e" and ids[-1] == 0
  assert [chr(i) for i, own in zip(ids, learned, strict=True) if own] == [
    *"cde",
    "\0",
  ]


@pytest.mark.parametrize("form", prompts.FORMS)
def test_worked_conversations_hold(form):
  for asked, reply in prompts.worked(form):
    assert prompts.ask("1?", form, "few_shot").count(reply) == 1
    assert asked in prompts.ask("1?", form, "few_shot")
    answer = code_blocks.find_answer(reply)
    block = code_blocks.find_block(reply)
    assert (block is None) == (form == "text")
    if block is None:
      continue
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
      exec(block.code, {})
    said = printed.getvalue().strip()
    if form == "code":
      assert code_blocks.find_answer(said) and block.end == len(reply)
    else:
      assert said == answer


class Templated:
  def chat(self, text):
    return f"[{text}]"


@pytest.mark.parametrize("form", prompts.FORMS)
def test_prompts_hold_the_question_and_the_marks(form):
  full = prompts.ask("What is 2 * 3?", form, "full")
  assert "What is 2 * 3?" in full and "<<<" in full
  assert ("```python" in full) == (form != "text")
  chat = prompts.ask("What is 2 * 3?", form, "chat", Templated())
  assert chat == f"[{full.removesuffix('Reply:' + chr(10)).rstrip()}]"
  with pytest.raises(ValueError, match="expected a tokenizer"):
    prompts.ask("What is 2 * 3?", form, "chat")
  compact = prompts.ask("What is 2 * 3?", form, "compact")
  assert compact.startswith("What is 2 * 3?\n")
  assert compact.endswith("?\n" if form == "free" else f"\n{form}\n")


def test_files_of_questions_and_of_what_was_measured(tmp_path):
  questions = sources.read("gym:gcd", 4, 1)
  path = tmp_path / "questions.jsonl"
  question.write(path, questions)
  assert sources.read(str(path), 3, 0) == questions[:3]
  counts = tmp_path / "measured.jsonl"
  measured.write(counts, questions, [Measured(n, 20) for n in range(4)])
  found = measured.of_all(counts, questions[1:])
  assert found == [Measured(right, 20) for right in (1, 2, 3)]
  others = sources.read("gym:lcm", 1, 1)
  with pytest.raises(ValueError, match="1 of 5 questions are missing"):
    measured.of_all(counts, [*questions, *others])
  with pytest.raises(ValueError, match="there is no such file"):
    measured.of_all(tmp_path / "none", questions)
  path.write_text('{"id": "x"}\n')
  with pytest.raises(ValueError, match="jsonl:1: .*expected a question"):
    question.read(path)
