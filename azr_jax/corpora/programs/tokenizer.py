"""The sentencepiece tokenizer of the embedded model.

Protocol markers, common words and code, and the numbers 10-99 are one token
each, so that a tiny model can learn arithmetic on them. The letters of string
values are always separate tokens, so that a model can reverse and count them.
Bytes cover all other text.
"""

import collections
import pathlib
import re
from collections.abc import Iterable

from azr_jax.corpora.programs import operations
from azr_jax.models import tokenizer_training

VOCAB_SIZE = 544  # The maximum; unused ids are padding.
LABELS = ("python", "input", "output", "message")
FENCES = tuple(f"```{label}\n" for label in LABELS)
# Longer markers match first, so closing one fence and opening the next is a
# single token.
MARKERS = (
  *FENCES,
  *(f"\n{fence}" for fence in FENCES),
  *(f"\n```\n{fence}" for fence in FENCES),
  "\n```",
  "\n```\nAssistant: <think>",
  "\nAssistant: <think>",
  "User: ",
  "<think>",
  "</think>",
  "</think>\n<answer>",
  "<answer>",
  "</answer>",
  "\n",
  "\n  ",
  "\n    ",
  "\n  return ",
  "\n    return ",
  "def f(",
  "\n  for i in ",
  "\n  if ",
  "\n  else:\n    ",
  "):\n  ",
  "):\n    ",
  ":\n    ",
  " for i in ",
  "[i ",
  "[::-1]",
  "[1:]",
  "[0]",
  "[-1]",
  ".upper()",
  *(f"{name}(" for name in ("len", "list", "max", "min", "sorted", "str")),
  "sum(",
  *(f" {operator} " for operator in ("=", "+", "-", "*", "//", "%", ">")),
  ", ",
  "; ",
  ", then ",
)


def train_tokenizer(texts: Iterable[str], folder: pathlib.Path) -> pathlib.Path:
  """Trains the tokenizer on conversations; returns the path of its file."""
  texts = list(texts)
  symbols = [
    *MARKERS,
    *common_words(texts),
    *(str(number) for number in range(10, 100)),
  ]
  return tokenizer_training.train(texts, symbols, VOCAB_SIZE, folder)


def common_words(texts: list[str], min_per_text: float = 0.01) -> list[str]:
  """Returns frequent words outside of markers, most frequent first.

  A word includes the space before it. Words made only of the letters of string
  values are left out.

  Args:
    texts: the conversations.
    min_per_text: minimum mean number of occurrences per text.
  """
  markers = sorted(MARKERS, key=len, reverse=True)
  marker = re.compile("|".join(re.escape(text) for text in markers))
  string_letters = re.compile(f"[{operations.LETTERS}]+", re.IGNORECASE)
  counts = collections.Counter(
    word
    for text in texts
    for chunk in marker.split(text)
    for word in re.findall(r" ?[A-Za-z]{2,}", chunk)
  )
  return [
    word
    for word, count in counts.most_common()
    if count >= min_per_text * len(texts) and not string_letters.fullmatch(word)
  ]
