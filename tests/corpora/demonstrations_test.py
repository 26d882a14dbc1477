"""Files of demonstrations, and the selection of those to train on."""

import collections
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from letters import Letters

from azr_jax.corpora import demonstrations
from azr_jax.corpora.demonstrations import Demonstration
from azr_jax.tools import code_blocks

BLOCK = "so\n```python\nprint(6*7)\n```"
OUTPUT = f"{code_blocks.OUTPUT_PREFIX}42\n{code_blocks.OUTPUT_SUFFIX}"


def make(number, task="gym/products", turns=("<<<42>>>",)):
  return Demonstration(f"{task}/{number}", task, "free", f"{number}?\n", turns)


def test_files_keep_conversations(tmp_path):
  path = tmp_path / "trajectories.jsonl"
  given = [
    make(1),
    make(2, turns=(BLOCK, OUTPUT, "\u2028 é <<<42>>>")),
  ]
  demonstrations.write(path, given)
  assert demonstrations.read(path) == given
  conversation = given[1].conversation()
  ids, loss_mask = conversation.tokens(Letters())
  trained_on = "".join(
    chr(token_id)
    for token_id, mask in zip(ids[:-1], loss_mask[:-1], strict=True)
    if mask
  )
  assert trained_on == BLOCK + given[1].turns[2]
  assert loss_mask[-1]


@pytest.mark.parametrize(
  "line, message",
  [
    ("", "at least one"),
    ("[]", "expected a conversation"),
    ('{"id": "1"}', "expected a conversation"),
    (
      '{"id": "1", "task": "a", "solution_style": "free", "prompt": "?", '
      '"turns": ["a", "b"]}',
      "2 turns",
    ),
    (
      '{"id": "1", "task": "a", "solution_style": "free", '
      '"prompt": "?", "turns": [1]}',
      "expected texts",
    ),
    (
      '{"id": "1", "task": "a", "solution_style": "free", '
      '"prompt": "?", "turns": "abc"}',
      "expected texts",
    ),
  ],
)
def test_other_files_are_refused(tmp_path, line, message):
  path = tmp_path / "trajectories.jsonl"
  path.write_text(line + "\n")
  with pytest.raises(ValueError, match=message):
    demonstrations.read(path)
  with pytest.raises(ValueError, match="no such file"):
    demonstrations.read(tmp_path / "other.jsonl")


def test_files_without_a_key_are_refused(tmp_path):
  path = tmp_path / "trajectories.jsonl"
  path.write_text(
    '{"id": "1", "task": "a", "form": "free", "prompt": "?", "turns": ["4"]}'
  )
  with pytest.raises(ValueError, match="solution_style"):
    demonstrations.read(path)


@pytest.mark.parametrize(
  "turns, well_formed",
  [
    (("<<<4>>>",), True),
    ((BLOCK, OUTPUT, "<<<4>>>"), True),
    ((BLOCK, OUTPUT), False),
    ((BLOCK,), False),
    ((BLOCK + " and", OUTPUT, "<<<4>>>"), False),
    ((BLOCK, OUTPUT, "<<<4>>> or <<<5>>>"), False),
    (("4",), False),
  ],
)
def test_well_formed_conversations(turns, well_formed):
  assert demonstrations.is_well_formed(turns) is well_formed


@given(
  st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc")), max_size=40),
  st.integers(1, 5),
  st.integers(0, 3),
)
def test_at_most_per_task_distinct_conversations_are_chosen(
  drawn, per_task, seed
):
  given = [make(number, task) for number, task in drawn]
  chosen = demonstrations.choose(given, per_task, 3.0, seed)
  assert len(set(chosen)) == len(chosen)
  assert set(chosen) <= set(given)
  counts = collections.Counter(one.task for one in chosen)
  distinct = collections.Counter(one.task for one in set(given))
  assert counts == {t: min(n, per_task) for t, n in distinct.items()}
  assert chosen == demonstrations.choose(given, per_task, 3.0, seed)


def test_conversations_with_code_are_chosen_by_their_weight():
  texts = [make(number) for number in range(1000)]
  codes = [
    dataclasses.replace(one, turns=(BLOCK, OUTPUT, "<<<42>>>")) for one in texts
  ]
  for weight, expected in ((1.0, 0.5), (3.0, 0.75)):
    chosen = demonstrations.choose(texts + codes, 200, weight, 0)
    fraction = sum(len(one.turns) > 1 for one in chosen) / len(chosen)
    assert abs(fraction - expected) < 0.1
