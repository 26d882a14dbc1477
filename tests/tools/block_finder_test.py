"""Finding the end of a python block during sampling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from azr_jax.tools import code_blocks
from azr_jax.tools.block_finder import BlockFinder

PIECES = (
  "```python\n|```python|```|``|`|\n|x|```\n|python| |\t||é|\r|~~~Py\n|~~|~"
  "|- |  "
).split("|")


def end_of_block(token_ids, start, chunk, decode, begun="", marks=""):
  """Returns the end that a finder reports when tokens come in chunks.

  With marks, the finder is not called for chunks without one.
  """
  finder, checked, end = BlockFinder(decode, begun), start, None
  while end is None and checked < len(token_ids):
    so_far = np.asarray(token_ids[: checked + chunk], np.int32)
    new = "".join(decode([token]) for token in so_far[checked:])
    if not marks or set(marks) & set(new):
      end = finder.end_of_block(so_far, start, checked)
    checked = len(so_far)
  return end


def first_end(token_ids, start, decode, begun=""):
  """Returns the end, by decoding every prefix of the response."""
  ends = (
    count
    for count in range(start, len(token_ids) + 1)
    if code_blocks.find_block(begun + decode(token_ids[start:count]))
  )
  return next(ends, None)


@settings(max_examples=300)
@given(
  st.lists(st.sampled_from(PIECES), max_size=40),
  st.integers(1, 7),
  st.sampled_from(("", code_blocks.MARKS)),
)
def test_a_response_ends_with_the_token_that_closes_its_block(
  pieces, chunk, marks
):
  """The end does not depend on how many tokens arrive at a time."""

  def decode(token_ids):
    return "".join(pieces[i] for i in token_ids)

  token_ids = list(range(len(pieces)))
  start = len(pieces) // 4  # The tokens before belong to another response.
  expected = first_end(token_ids, start, decode)
  found = end_of_block(token_ids, start, chunk, decode, marks=marks)
  assert found == expected


@settings(max_examples=300)
@given(
  st.lists(st.sampled_from(PIECES), max_size=40),
  st.integers(1, 7),
  st.sampled_from(("```python\n", "so\n  ~~~Py", "```python\nx\n``", "`")),
)
def test_a_block_may_begin_before_the_first_token(pieces, chunk, begun):

  def decode(token_ids):
    return "".join(pieces[i] for i in token_ids)

  token_ids = list(range(len(pieces)))
  expected = first_end(token_ids, 0, decode, begun)
  assert end_of_block(token_ids, 0, chunk, decode, begun) == expected


@pytest.mark.parametrize("chunk", [1, 2, 5])
@pytest.mark.parametrize("letter", ["é", "漢", "😀"])
def test_a_letter_may_be_split_between_tokens(letter, chunk):
  """Each token is a byte; part of a letter decodes to a replacement mark."""

  def decode(token_ids):
    return bytes(token_ids).decode("utf-8", "replace")

  text = f"{letter}```python  \n{letter}```\nx{letter}\n```{letter}"
  token_ids = list(text.encode())
  expected = first_end(token_ids, 0, decode)
  assert expected == len(token_ids) - len(letter.encode())
  assert end_of_block(token_ids, 0, chunk, decode) == expected


@pytest.mark.parametrize(
  "line",
  [
    *("```python ", "x```python\n", "```\n", "\n``", "```python \t", "`"),
    *("~~~\n", " ```\n", "- ```py\n", "~~~py\n``\n", " " * 9),
  ],
)
def test_no_token_is_decoded_often(line):
  """A response may have a fence in each line and never close a block."""
  decoded = 0

  def decode(token_ids):
    nonlocal decoded
    decoded += len(token_ids)
    return "".join(map(chr, token_ids))

  token_ids = list(map(ord, line * 1000))
  if "\n" in line and "py" in line:
    token_ids = [t for t in token_ids if t != ord("\n")]
  assert end_of_block(token_ids, 0, 16, decode) is None
  assert decoded < 3 * len(token_ids)
