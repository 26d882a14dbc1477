"""What a teacher reads: which text, where in the prompt, and how much of it."""

import dataclasses

import letters
import numpy as np
import pytest

from azr_jax import types
from azr_jax.learner import packing
from azr_jax.rollout import policy as policy_lib
from azr_jax.trainer.teacher_prompts import TeacherPrompts

TEXT = "1+2?\nAssistant: <think>"
TEMPLATES = {name: f" ({name}: {{text}})" for name in ("feedback", "reference")}
TEMPLATES["success"] = " (like {text})"


def teacher(*context, text_tokens=100, vocab_size=128, reads_all=False):
  return TeacherPrompts(
    *(letters.Letters(), context, TEMPLATES, 1.0, text_tokens, 400),
    vocab_size=vocab_size,
    reads_all=reads_all,
  )


def response(text="4", reward=0.0, question_end=4, **more):
  ids = np.array([*map(ord, text), 0], np.int32)
  completion = types.Completion(
    ids, np.zeros(len(ids), np.float32), ids > 0, "stop", text
  )
  prompt = types.Prompt(TEXT, tuple(map(ord, TEXT)), question_end=question_end)
  return types.Trajectory(prompt, completion, reward, "group", **more)


def read(writer, *trajectories):
  """Returns what the teacher reads of each response; None if nothing."""
  sequences = packing.from_trajectories(trajectories, None)
  return [
    None
    if sequence.teacher_ids is None
    else "".join(map(chr, sequence.teacher_ids))
    for sequence in writer.added(sequences, trajectories)
  ]


def test_the_text_stands_behind_the_question():
  told = response(feedback="too large\n")
  start = dataclasses.replace(
    told, prompt=dataclasses.replace(told.prompt, question_end=0)
  )
  followed = response(feedback="too large", question_end=len(TEXT))
  found = read(teacher("feedback"), told, response(), start, followed)
  in_front = "(feedback: too large)\n\n1+2?\nAssistant: <think>4\0"
  assert found == [
    "1+2? (feedback: too large)\nAssistant: <think>4\0",
    None,
    in_front,
    in_front,
  ]


def test_the_first_context_that_a_response_has_counts():
  wrong = response(feedback="no", reference="3")
  right = response("3", reward=1.0, reference="3")
  found = read(teacher("success", "feedback"), wrong, right)
  assert found == ["1+2? (like 3)\nAssistant: <think>4\0", None]
  found = read(teacher("feedback", "reference"), wrong, right)
  assert found[0] == "1+2? (feedback: no)\nAssistant: <think>4\0"
  assert found[1] == "1+2? (reference: 3)\nAssistant: <think>3\0"


def test_a_response_out_of_the_loss_is_only_an_example():
  right = response("3", reward=1.0, in_loss=False)
  [found] = read(teacher("success"), right, response("5"))
  assert found == "1+2? (like 3)\nAssistant: <think>5\0"


def test_another_model_reads_every_response_that_it_has_embeddings_for():
  told, right = response(feedback="no"), response("3", reward=1.0)
  other = teacher("feedback", reads_all=True)
  assert read(other, told, right) == [
    "1+2? (feedback: no)\nAssistant: <think>4\0",
    f"{TEXT}3\0",
  ]
  assert read(teacher(reads_all=True), told) == [f"{TEXT}4\0"]
  few = teacher("feedback", reads_all=True, vocab_size=ord("4"))
  assert read(few, told, right) == [None, f"{TEXT}3\0"]


@pytest.mark.parametrize("text_tokens", [20, 40, 200])
def test_a_long_text_loses_its_middle(text_tokens):
  text = "Traceback" + "." * 3000 + "KeyError"
  [found] = read(
    teacher("feedback", text_tokens=text_tokens), response(feedback=text)
  )
  assert found is not None
  assert len(found) <= len(TEXT) + text_tokens + 2
  assert "\n...\n" in found or text_tokens < 30
  if text_tokens == 200:
    assert "(feedback: Traceback" in found and "KeyError)\n" in found
    assert len(found) > len(TEXT) + 100


def test_a_text_that_cannot_fit_is_left_out():
  writer = teacher("feedback", text_tokens=5)
  assert read(writer, response(feedback="no")) == [None]


@pytest.mark.parametrize(
  "text, question, end",
  [
    ("User: 1+2?\nAssistant: <think>", "", "User: 1+2?"),
    ("User: a\nAssistant: b\n\nUser: c\nAssistant:", "", None),
    ("solve [1 2] 3\n<think>", "", "solve [1 2] 3"),
    ("<|user|>\n1+2?<|end|>\n<|assistant|>\n", " 1+2?\n", "<|user|>\n1+2?"),
    ("continue this text", "", ""),
  ],
)
def test_the_end_of_a_question_is_found(text, question, end):
  policy = policy_lib.Policy.__new__(policy_lib.Policy)
  policy.tokenizer = letters.Letters()
  prompt = policy.prompt(text, question=question)
  if end is None:
    end = text.removesuffix("\nAssistant:")
  assert text[: prompt.question_end] == end
