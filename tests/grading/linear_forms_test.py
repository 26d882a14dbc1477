"""Linear-time readers find the same matches as the patterns they replaced.

The old patterns take quadratic or exponential time, so texts are short here.
`tests/complexity/readers_test.py` uses long ones.
"""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from azr_jax.evals import answer_extraction, multiple_choice
from azr_jax.grading import answer_tags, countdown
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.grading.gym import grader as gym
from azr_jax.grading.mathematics import extraction
from azr_jax.grading.symbench import plans

TAGS = ["<answer>", "</answer>", "a", "\n", " ", "<", ">", "</"]
CHOICES = "answer|Answer| is| |\n|:|A|B|I|(|)|.|option|Choice|a|!|x".split("|")


def _last(pattern, flags=re.DOTALL):
  def find(text):
    found = re.findall(pattern, text, flags)
    return found[-1].strip() if found else None

  return find


def _words(text):
  pattern = r"(?:final answer|answer)(?: is)?\s*[:=]?\s*(.+)"
  named = re.findall(pattern, text.rstrip(), re.IGNORECASE)
  lines = [line.strip() for line in text.splitlines() if line.strip()]
  last = named[-1] if named else lines[-1] if lines else None
  return last and last.strip().rstrip(".").strip("`").strip()


def _choice(text):
  letter = r"((?![AI])[A-J]\b|(?=[A-J])[AI]\b(?!\s+[a-z]))"
  word = r"(?:option|choice|letter)?"
  for pattern in (
    rf"(?i:answer(?:\s+is)?\s*:?\s*{word})\s*\(?{letter}",
    r"\(([A-J])\)",
    r"^\W*([A-J])\W*$",
  ):
    found = re.findall(pattern, text, re.MULTILINE)
    if found:
      return found[-1]
  found = re.findall(r"^\W*([A-J])[.):]", text, re.MULTILINE)
  return found[0] if len(found) == 1 else None


def _normalized(text):
  text = re.sub(r"\\text\{(.*?)\}|\\([{}])", r"\1\2", text)
  return " ".join(text.casefold().split()).rstrip(".")


def _letters(text):
  pattern = r"count\s*:\s*(\d{1,6})\s*[,;\n]\s*positions\s*:\s*\[([\d\s,]*)\]"
  match = re.fullmatch(pattern, text.strip(" \n\t{}"), re.I | re.A)
  return match is not None and (match[1], match[2].split()) == ("1", ["1"])


def _is_formula(text):
  pattern = r"(?:\d+\.?\d*|[A-Za-z]\w*|[\s+*/(),^|-])*\Z"
  return re.match(pattern, text, re.ASCII) is not None


def _is_sum(text):
  pattern = r"(?:\d+|[\s+()-]|\*(?!\*)|/(?!/))*\Z"
  joined = re.search(r"\d\s+\d", text)
  return re.match(pattern, text, re.ASCII) is not None and not joined


READERS = {
  "last_answer": (
    _last(r"<answer>((?:(?!<answer>).)*?)</answer>"),
    answer_tags.last_answer,
    TAGS,
  ),
  "answer_blocks": (
    lambda text: len(re.findall("<answer>.*?</answer>", text, re.DOTALL)),
    answer_tags.answer_blocks,
    TAGS,
  ),
  "countdown, published_code": (
    lambda text: _last("<answer>(.*?)</answer>", 0)(text) == "3",
    lambda text: (
      countdown.verify(Puzzle((3,), 3), text, "published_code").correct
    ),
    [*TAGS, "3", "3"],
  ),
  "gym countdown": (
    _is_sum,
    lambda text: gym.is_harmless("countdown", text),
    [*"0129 +-*/()\n.a"],
  ),
  "gym formula": (
    lambda text: _is_formula(text) and not re.search(r"[xy]\w", text),
    lambda text: gym.is_harmless("polynomial_multiplication", text),
    [*"01.._xyx+*/(),^|- =\n"],
  ),
  "last_words": (
    _words,
    answer_extraction.last_words,
    "answer|Final Answer| is| |\n|:|=|5|x.|`|\t|A".split("|"),
  ),
  "choice": (_choice, answer_extraction.choice, CHOICES),
  "choice of letters": (_choice, answer_extraction.choice, [*"AB\n .:!x)"]),
  "normalized": (
    _normalized,
    multiple_choice.normalized,
    "\\text{|\\|{|}|a|\n|\\{|\\}| ".split("|"),
  ),
  "letters": (
    _letters,
    lambda text: plans.letters({"word": "a", "letter": "a"}, text),
    "count:1|positions:[1]|count|:1| |\n|,|;|positions|: [|1 ]".split("|"),
  ),
}


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=200)
@given(data=st.data())
def test_a_linear_reader_finds_what_the_pattern_found(name, data):
  pattern, reader, pieces = READERS[name]
  text = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=12)))
  assert reader(text) == pattern(text)


@pytest.mark.parametrize(
  "text, holds",
  [
    ("count: 1, positions: [1]", True),
    ("count:1\n\npositions:[1]", True),
    ("count:1 \n ;\n positions:[1]", True),
    ("count:1 positions:[1]", False),
    ("count:1,;positions:[1]", False),
  ],
)
def test_the_parts_of_letters_are_separated(text, holds):
  assert plans.letters({"word": "a", "letter": "a"}, text) == holds
  assert _letters(text) == holds


def test_the_last_box_is_the_outermost_of_nested_ones():
  text = r"\boxed{1} \boxed{a \boxed{b}} \boxed{"
  assert extraction.last_boxed(text) == r"a \boxed{b}"


def test_signs_without_end_are_a_wrong_answer():
  """Brackets break up the signs, so operators may nest as deep as the text."""
  signs = ("-" * 64 + "(") * 14
  text = f"<answer>{signs}3{')' * 14}</answer>"
  verdict = countdown.verify(Puzzle((3,), 3), text, "published_code")
  assert verdict.reason == "nested too deeply"
