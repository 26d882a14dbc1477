"""The program corpus: its claims hold, and held-out programs stay out."""

import dataclasses
import re

import numpy as np
import pytest

from azr_jax.corpora.programs import (
  conversations,
  dataset,
  generator,
  heldout,
  operations,
  styles,
  tokenizer,
)
from azr_jax.corpora.programs.conversations import ProgramMix
from azr_jax.models.tokenizers import SentencePieceTokenizer
from azr_jax.tasks.programs import parsing, validation
from azr_jax.tasks.programs.task import ROLES, TASK_TYPES

MIX = ProgramMix(
  chain_of_thought_prob=0.5,
  table_prob=0.5,
  flaw_prob=0.25,
  vague_prob=0.3,
  num_inputs=4,
  references=2,
)


def generate(count=300, seed=3):
  return list(dataset.generate(seed, count, MIX))


def test_claimed_cases_hold(executor):
  checked = dataset.validate(executor, generate())
  assert set(checked) == {f"{t}/{r}" for t in TASK_TYPES for r in ROLES}


def test_a_wrong_claim_is_refused(executor):
  wrong = conversations.ClaimedCase("def f(x):\n  return x", ("1",), ("2",))
  conversation = conversations.ProgramConversation(
    "", "", "deduction", "solve", (), wrong
  )
  with pytest.raises(ValueError, match="the corpus claims"):
    dataset.validate(executor, [conversation])


def test_the_same_seed_gives_the_same_corpus():
  assert generate(60) == generate(60)
  assert generate(60) != generate(60, seed=4)


def test_chains_can_be_longer_and_integers_larger():
  rng = np.random.default_rng(0)
  four = []
  for _ in range(50):
    program = generator.generate_program(rng, (0.0, 0.0, 0.0, 1.0))
    goes_on = program.chain[-1].output_type in operations.MAKERS
    four.append(len(program.chain) == 4)
    assert four[-1] or not goes_on
  assert any(four)
  while program.opening.line or program.opening.output_type != "int":
    program = generator.generate_program(rng, (1.0,))
  doubled = dataclasses.replace(program, chain=(_doubling(),))
  assert doubled.trace((30,)) is None
  assert doubled.trace((30,), max_int=60) == [30, 60]
  assert doubled.trace((30,), max_int=59) is None


def _doubling() -> operations.ChainOperation:
  return operations.ChainOperation(
    "int", "{v} * 2", "double", lambda v: v * 2, lambda v: v // 2
  )


def test_solutions_have_a_style_and_thoughts_can_be_begun():
  untold = []
  for conversation in generate():
    if conversation.role == "propose":
      continue
    begin = styles.think(conversation.prompt, conversation.task_type)
    is_direct = conversation.response.startswith(conversations.DIRECT)
    expected = conversations.DIRECT if is_direct else styles.THOUGHT
    assert styles.name(conversation.response) == expected
    assert is_direct or conversation.response.startswith(begin)
    untold.append(not begin)
  assert 0 < np.mean(untold) < 0.1
  assert styles.name("</think>\n<answer>1</answer>") == conversations.DIRECT


def test_responses_follow_the_protocol_and_are_correct():
  for conversation in generate():
    assert parsing.well_formatted(conversation.response)
    case = conversation.case
    if conversation.role == "propose":
      continue
    if conversation.task_type == "deduction":
      answer = parsing.parse_output_answer(conversation.response)
      assert answer == case.outputs[0]
    if conversation.task_type == "abduction":
      answer = parsing.parse_input_answer(conversation.response)
      assert answer == case.inputs[0]


def test_most_flawed_proposals_are_rejected(executor):
  mix = dataclasses.replace(MIX, flaw_prob=1.0)
  rng = np.random.default_rng(0)
  validations = []
  for _ in range(60):
    flawed = mix.draw(rng, "deduction", "propose")
    parsed = parsing.parse_triplet_proposal(flawed.response)
    if parsed is not None:
      validations.append(validation.submit_triplet(executor, *parsed))
  rejected = [
    isinstance(pending.result(), validation.Rejection)
    for pending in validations
  ]
  assert sum(rejected) > 0.6 * len(rejected)


def test_the_corpus_has_no_heldout_program():
  for conversation in generate():
    assert not any(heldout.is_heldout(code) for code in conversation.programs)


def test_names_do_not_decide_what_is_held_out():
  rng = np.random.default_rng(0)
  for _ in range(200):
    program = generator.generate_program(rng)
    if any(operation.helper for operation in program.chain):
      continue  # A known gap, which the module's docstring names.
    if program.variable == "a":  # It is a letter in texts, too.
      continue
    renamed = re.sub(rf"\b{program.variable}\b", "k", program.code)
    assert heldout.is_heldout(renamed) == heldout.is_heldout(program.code)


def test_as_many_stored_tasks_have_the_gap_as_is_said():
  codes = [one.task.code for one in heldout.read()]
  with_gap = [code for code in codes if _has_seen_twin(code)]
  assert len(with_gap) == 84
  assert all("def g(v)" in code for code in with_gap)


def _has_seen_twin(code: str) -> bool:
  """Returns whether a twin with another variable is not held out."""
  helper, start, function = code.rpartition("def f(")
  if not helper:
    return False  # Names do not matter, as the test above shows.
  names = set(re.findall(r"\b[xnavy]\b", function))
  twins = [
    helper + start + re.sub(rf"\b{name}\b", other, function)
    for name in names
    for other in generator.VARIABLE_NAMES
    if other not in names
  ]
  return not all(map(heldout.is_heldout, twins))


def test_the_stored_tasks_are_those_of_the_seed(executor):
  tasks = heldout.read()
  assert len(tasks) == 3 * heldout.PER_TYPE
  assert all(heldout.is_heldout(t.task.code) for t in tasks)
  rebuilt = heldout.build(executor, heldout.SEED, 5)
  assert rebuilt[:5] == tasks[:5]


def test_tokenizer_round_trip(tmp_path):
  texts = [c.prompt + c.response for c in generate(600)]
  model = SentencePieceTokenizer(tokenizer.train_tokenizer(texts, tmp_path))
  for text in [*texts[:50], "héllo\t☃  two  spaces\n\n  ", "``` 123 -7"]:
    assert model.decode(model.encode(text)) == text
  assert model.token_id("</answer>") is not None
  assert model.vocab_size <= tokenizer.VOCAB_SIZE
  assert len(model.encode("'addeddecade'")) == 13
  assert len(model.encode("[10, 99]")) == 5
