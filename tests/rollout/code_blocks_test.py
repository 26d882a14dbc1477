"""Where replies end, and what is a block, an answer, a well-formed reply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azr_jax.rollout import code_blocks

PIECES = ["```python\n", "```", "\n", "x", "```\n", "<<<", ">>>", "python", " "]


@pytest.mark.parametrize(
  "text, code",
  [
    ("```python\nprint(1)\n```", "print(1)\n"),
    ("So: ```python\nx\n``` and ```python\ny\n```", "x\n"),
    ("```python\n```", ""),
    ("```python  \nx = '```'\ny\n```", "x = '```'\ny\n"),
    ("```python\nx", None),
    ("```\nx\n```", None),
    ("```text\nx\n```\n```python\ny\n```", "y\n"),
    ("```python x\n```", None),
    ("", None),
  ],
)
def test_the_first_closed_python_block_is_found(text, code):
  block = code_blocks.find_block(text)
  assert (block and block.code) == code
  if block:
    assert text[block.start :].startswith("```python")
    assert text[: block.end].endswith("```")


def test_the_last_answer_counts_and_a_block_after_one_is_not_run():
  assert code_blocks.find_answer("<<<1>>> or <<< 2\n>>>") == "2"
  assert code_blocks.find_answer("<<<1>> >") is None
  block = "```python\nprint(1)\n```"
  assert code_blocks.block_to_run(f"now {block}").code == "print(1)\n"
  assert code_blocks.block_to_run(f"<<<3>>> {block}") is None


@pytest.mark.parametrize(
  "reply, last, formed",
  [
    ("so <<<4>>>", True, True),
    ("so <<<4>>>\n", True, True),
    ("so <<<4>>>.", True, False),
    ("<<<4>>> <<<4>>>", True, False),
    ("nothing", True, False),
    ("run ```python\nx\n```", False, True),
    ("run ```python\nx\n```\n", False, True),
    ("run ```python\nx\n``` then", False, False),
    ("<<<4>>> ```python\nx\n```", False, False),
    ("nothing", False, False),
  ],
)
def test_well_formed_replies(reply, last, formed):
  assert code_blocks.is_well_formed(reply, last) == formed


@given(st.lists(st.sampled_from(PIECES), max_size=40), st.integers(1, 7))
def test_a_reply_ends_with_the_token_that_closes_its_block(pieces, chunk):
  """However many tokens come at a time."""

  def decode(ids):
    return "".join(pieces[i] for i in ids)

  start = len(pieces) // 4  # What stands before is of another reply.
  ids = list(range(len(pieces)))
  ends = (
    n
    for n in range(start, len(ids) + 1)
    if code_blocks.find_block(decode(ids[start:n]))
  )
  want, found, seen = next(ends, None), None, start
  while found is None and seen < len(ids):
    shown = ids[: seen + chunk]
    found = code_blocks.end_of_block(shown, start, seen, decode)
    seen = len(shown)
  assert found == want
