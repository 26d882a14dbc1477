"""Files of conversations, and which are chosen to be learned from."""

import collections
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azr_jax.corpora import demonstrations
from azr_jax.corpora.demonstrations import Trajectory
from azr_jax.rollout import code_blocks

BLOCK = "so\n```python\nprint(6*7)\n```"
RESULT = f"{code_blocks.LABEL}42\n{code_blocks.AFTER}"


def make(number, task="gym/products", parts=("<<<42>>>",)):
  return Trajectory(f"{task}/{number}", task, "free", f"{number}?\n", parts)


def test_files_keep_conversations(tmp_path):
  path = tmp_path / "trajectories.jsonl"
  written = [
    make(1),
    make(2, parts=(BLOCK, RESULT, "\u2028 é <<<42>>>")),
  ]
  demonstrations.write(path, written)
  assert demonstrations.read(path) == written
  conversation = written[1].conversation()
  ids, learned = conversation.tokens(lambda text: list(map(ord, text)), 0)
  own = "".join(
    chr(one)
    for one, is_own in zip(ids[:-1], learned[:-1], strict=True)
    if is_own
  )
  assert own == BLOCK + written[1].parts[2]
  assert learned[-1]


@pytest.mark.parametrize(
  "line, message",
  [
    ("", "at least one"),
    ("[]", "expected a conversation"),
    ('{"id": "1"}', "expected a conversation"),
    (
      '{"id": "1", "task": "a", "form": "free", "prompt": "?", '
      '"parts": ["a", "b"]}',
      "2 parts",
    ),
    (
      '{"id": "1", "task": "a", "form": "free", "prompt": "?", "parts": [1]}',
      "expected texts",
    ),
    (
      '{"id": "1", "task": "a", "form": "free", "prompt": "?", "parts": "abc"}',
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


@pytest.mark.parametrize(
  "parts, right",
  [
    (("<<<4>>>",), True),
    ((BLOCK, RESULT, "<<<4>>>"), True),
    ((BLOCK, RESULT), False),
    ((BLOCK,), False),
    ((BLOCK + " and", RESULT, "<<<4>>>"), False),
    ((BLOCK, RESULT, "<<<4>>> or <<<5>>>"), False),
    (("4",), False),
  ],
)
def test_form(parts, right):
  assert demonstrations.is_well_formed(parts) is right


@given(
  st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc")), max_size=40),
  st.integers(1, 5),
  st.integers(0, 3),
)
def test_tasks_have_at_most_so_many_and_no_twins(drawn, per_task, seed):
  given = [make(number, task) for number, task in drawn]
  chosen = demonstrations.choose(given, per_task, 3.0, seed)
  assert len(set(chosen)) == len(chosen)
  assert set(chosen) <= set(given)
  counts = collections.Counter(one.task for one in chosen)
  distinct = collections.Counter(one.task for one in set(given))
  assert counts == {t: min(n, per_task) for t, n in distinct.items()}
  assert chosen == demonstrations.choose(given, per_task, 3.0, seed)


def test_code_is_favoured_as_much_as_the_weight_says():
  texts = [make(number) for number in range(1000)]
  codes = [
    dataclasses.replace(one, parts=(BLOCK, RESULT, "<<<42>>>")) for one in texts
  ]
  for weight, share in ((1.0, 0.5), (3.0, 0.75)):
    chosen = demonstrations.choose(texts + codes, 200, weight, 0)
    found = sum(len(one.parts) > 1 for one in chosen) / len(chosen)
    assert abs(found - share) < 0.1
