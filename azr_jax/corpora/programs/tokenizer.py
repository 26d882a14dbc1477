"""The sentencepiece tokenizer of the embedded model.

The protocol's markers, common words and code, and the numbers 10-99 are one
token each, so that a tiny model can learn arithmetic on them. The letters of
string values are always apart: no word is made of those letters alone, so
that reversing or counting them needs no spelling. Bytes cover the rest.
"""

import collections
import pathlib
import re
from collections.abc import Iterable

from azr_jax.corpora.programs import operations
from azr_jax.models import tokenizer_training

VOCAB_SIZE = 544  # at most; what the words leave free is padding
LABELS = ("python", "input", "output", "message")
FENCES = tuple(f"```{label}\n" for label in LABELS)
# Longer markers win, so "close a fence and open the next" is one token.
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
  """Trains on conversations as text; returns the model file's path."""
  texts = list(texts)
  symbols = [
    *MARKERS,
    *common_words(texts),
    *(str(number) for number in range(10, 100)),
  ]
  return tokenizer_training.train(texts, symbols, VOCAB_SIZE, folder)


def common_words(texts: list[str], share: float = 0.01) -> list[str]:
  """Words, with the space before them, found once in `1 / share` texts."""
  markers = sorted(MARKERS, key=len, reverse=True)
  marker = re.compile("|".join(re.escape(text) for text in markers))
  spelled = re.compile(f"[{operations.LETTERS}]+", re.IGNORECASE)
  counts = collections.Counter(
    word
    for text in texts
    for chunk in marker.split(text)
    for word in re.findall(r" ?[A-Za-z]{2,}", chunk)
  )
  return [
    word
    for word, count in counts.most_common()
    if count >= share * len(texts) and not spelled.fullmatch(word)
  ]
