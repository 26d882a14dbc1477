"""Code fences: openings, closings, nesting, and linear time."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azr_jax.text import fences
from azr_jax.text.fences import Fence

PIECES = "```|````|~~~|``|\n|python|py|x|  |- |1. |> | |\t|'|input".split("|")


@pytest.mark.parametrize(
  "text, contents",
  [
    ("```python\nx\n```", ["x"]),
    ("```py\nx\n```", ["x"]),
    ("```Python\nx\n```", ["x"]),
    ("```PYTHON3\nx\n```", ["x"]),
    ("``` python \nx\n```", ["x"]),
    ("~~~python\nx\n~~~", ["x"]),
    ("~~~~ py3\nx\n~~~~", ["x"]),
    ("```python\r\nx\r\n```\r\n", ["x\r"]),
    ("So: ```python\nx\n``` and ```python\ny\n```", ["x", "y"]),
    ("1. Run:\n   ```python\n   if x:\n     y\n   ```\n2. z", ["if x:\n  y"]),
    ("- ```py\n  x\n  ```", ["x"]),
    ("  ```python\nx\n```", ["x"]),
    ("```python\nx\n  ```", ["x"]),
    ("```python\nx\n  ```\n```python\ny\n```", ["x", "y"]),
    ("```python\ns = '```'\n```", ["s = '```'"]),
    ('```python\n"""\n  ```\n  z\n  ```\n"""\n```', None),
    ("````python\nx\n```\ny\n````", ["x\n```\ny"]),
    ("~~~python\nx\n```\ny\n~~~", ["x\n```\ny"]),
    ("~~~\nx\n  ~~~\n```python\ns = '```'\n```", ["s = '```'"]),
    ("```markdown\n```python\nx\n```\n```", ["x"]),
    ("```python\nx\n```output\n1\n```", ["x"]),
    ("```python x = 1```", ["x = 1"]),
    ("use ```x``` and\n```python\ny\n```", ["y"]),
    ("a ~~~ b\n```python\ny\n```", ["y"]),
    ("```python\nx", []),
    ("```python", []),
    ("```ipython\nx\n```", []),
    ("```\nx\n```", []),
    ("", []),
  ],
)
def test_closed_fences_of_python(text, contents):
  found = [
    fence.content
    for fence in fences.read(text)
    if fence.label == fences.PYTHON and fence.is_closed
  ]
  if contents is None:
    contents = ['"""\n  ```\n  z\n  ```\n"""']
  assert found == contents


@pytest.mark.parametrize(
  "text, contents",
  [
    ("```output\n'```'\n```", ["'```'"]),
    ("```output\n'```', 1\n``` \r\n", ["'```', 1"]),
    ("```output\n1```", ["1"]),
    ("```output\n1``` is it", ["1"]),
    ("```output\n1\n```\nor\n```output\n2```", ["1", "2"]),
    ("```Output\n1\n```", ["1"]),
    ("```output\n```", [""]),
    ("```output [1, 2]```", ["[1, 2]"]),
    ("```output 1", []),
    ("```output```", []),
    ("```output one\n2\n```", []),
  ],
)
def test_closed_fences_of_values(text, contents):
  found = [f for f in fences.read(text) if f.label == "output" and f.is_closed]
  assert [fence.content for fence in found] == contents


def test_what_is_not_closed_or_inline_says_so():
  assert fences.read("```python\nx\n") == [Fence("python", "x", False)]
  assert fences.read("```x```") == [Fence("", "x", True, True)]
  assert fences.read("```py x y```") == [Fence("python", "x y", True, True)]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_text_has_fences(text):
  found = fences.read(text)
  assert sum(len(fence.content) for fence in found) <= len(text)
  assert all(fence.is_closed for fence in found[:-1])


@given(
  st.sampled_from(["```", "~~~", "````"]),
  st.sampled_from(["", "  ", "   ", "- ", "1. "]),
  st.lists(st.sampled_from(["x = 1", "  y", "", "# ``", "'~~'"]), min_size=1),
)
def test_a_program_in_a_fence_is_read_as_it_is(marks, before, lines):
  blanks = " " * len(before)
  text = "\n".join(
    [f"{before}{marks}python", *(blanks + line for line in lines)]
    + [f"{blanks}{marks}", "done"]
  )
  (fence,) = fences.read(f"So:\n{text}\n")
  assert fence.content == "\n".join(lines).rstrip("\n")


@pytest.mark.slow
@pytest.mark.parametrize(
  "line",
  [
    *(
      "```\n",
      "```python\n",
      "  ```\n",
      "x ```",
      "~~~\n",
      "```x``` ",
      "````\n",
    ),
    *(
      "```python\n ```\n",
      "`````\n````\n```\n",
      "`",
      "x\n",
      "1. ```py\n",
      "~~~ ",
    ),
    "".join(f"{' ' * depth}```\n" for depth in range(60, 0, -1)),
    "".join(f"{' ' * depth}```\n" for depth in range(60)),
    "x ``` y\n ```\n",
  ],
)
def test_the_time_grows_no_faster_than_the_text(line):
  """Ten times the text may take up to sixty times as long, to allow noise."""

  def seconds(count):
    text = line * (count // len(line)) + "```python\n"
    best = math.inf
    for _ in range(3):
      start = time.thread_time()
      fences.read(text)
      best = min(best, time.thread_time() - start)
    return best

  assert seconds(200_000) < 60 * max(seconds(20_000), 1e-3)
