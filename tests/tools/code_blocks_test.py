"""Tool-call parsing: blocks, answers and well-formed responses."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typed import present

from azr_jax.tools import code_blocks

PIECES = (
  "```python\n|```|\n|x|```\n|<<<|>>>|python| |\t|<|>|`|~~~Py\n|~~~|- |  "
).split("|")


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
    ("```py\nx\n```", "x\n"),
    ("```Python3 \r\nx\n```", "x\n"),
    ("~~~python\n```\n~~~", "```\n"),
    ("````python\n```\nx\n````", "```\nx\n"),
    ("- ```python\n  if x:\n    y\n  ```", "if x:\n  y\n"),
    ("```python\nx\n  ```\n```", "x\n  ```\n"),
    ("```python\nx\n```python\ny\n```", "x\n"),
    ("```ipython\nx\n```", None),
    ("a ~~~python\nx\n~~~", None),
    ("z" * 900 + "```python\nx\n```", "x\n"),
    ("", None),
  ],
)
def test_the_first_closed_python_block_is_found(text, code):
  block = code_blocks.find_block(text)
  assert (block and block.code) == code
  if block:
    marks = text[block.start] * 3
    assert text[block.start :].startswith(marks)
    assert text[: block.end].endswith(marks)


def test_the_last_answer_counts_and_a_block_after_one_is_no_tool_call():
  assert code_blocks.find_answer("<<<1>>> or <<< 2\n>>>") == "2"
  assert code_blocks.find_answer("<<<1>> >") is None
  block = "```python\nprint(1)\n```"
  call = present(code_blocks.find_tool_call(f"now {block}"))
  assert call.code == "print(1)\n"
  assert code_blocks.find_tool_call(f"<<<3>>> {block}") is None


@pytest.mark.parametrize(
  "response, is_last, well_formed",
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
def test_well_formed_responses(response, is_last, well_formed):
  assert code_blocks.is_well_formed(response, is_last) == well_formed


OPENING = re.compile(r"(`{3,}|~{3,})[ \t]*(python3?|py3?)[ \t\r]*\Z", re.I)
INDENTED = re.compile(r"[ \t]*([-*+>]|\d+[.)])?[ \t]*")
ANSWER = re.compile(r"<<<(.*?)>>>", re.DOTALL)


def block_by_lines(text):
  """Computes `find_block` in quadratic time."""
  lines = text.split("\n")
  for index, line in enumerate(lines[:-1]):
    match = OPENING.search(line)
    before = INDENTED.fullmatch(line[: match.start()]) if match else None
    if match is None or (before is None and match[1][0] == "~"):
      continue
    count = match.start() if before else 0
    blanks = rf"^[ \t]{{0,{count}}}"
    for later in range(index + 1, len(lines)):
      closing = re.match(blanks + re.escape(match[1]), lines[later])
      if closing:
        code = [re.sub(blanks, "", part) for part in lines[index + 1 : later]]
        start = len("\n".join([*lines[:index], ""])) + match.start()
        end = len("\n".join([*lines[:later], closing[0]]))
        return "".join(f"{part}\n" for part in code), start, end
    return None
  return None


@settings(max_examples=400)
@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_blocks_and_answers_are_those_of_a_slow_search(text):
  block = code_blocks.find_block(text)
  assert block_by_lines(text) == (
    block and (block.code, block.start, block.end)
  )
  answers = ANSWER.findall(text)
  answer = answers[-1].strip() if answers else None
  assert code_blocks.find_answer(text) == answer
