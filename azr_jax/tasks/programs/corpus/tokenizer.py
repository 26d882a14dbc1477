"""The sentencepiece tokenizer of the embedded model.

The protocol's markers, indentation and the numbers 10-99 are one token each,
so that a tiny model can learn arithmetic on them; bytes cover the rest.
"""

import pathlib
from collections.abc import Iterable

import sentencepiece

VOCAB_SIZE = 640
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
  "):\n  ",
  ":\n    ",
  *(f" {operator} " for operator in ("=", "+", "-", "*", "//", "%", ">")),
  ", ",
  "; ",
  ", then ",
)


def train_tokenizer(texts: Iterable[str], folder: pathlib.Path) -> pathlib.Path:
  """Trains on conversations as text; returns the model file's path.

  Ids: 0 pad, 1 begin, 2 end, 3 unknown (never used: bytes fall back).
  """
  folder.mkdir(parents=True, exist_ok=True)
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(texts),
    model_prefix=str(folder / "tokenizer"),
    vocab_size=VOCAB_SIZE,
    model_type="bpe",
    normalization_rule_name="identity",
    add_dummy_prefix=False,
    remove_extra_whitespaces=False,
    split_digits=True,
    byte_fallback=True,
    character_coverage=1.0,
    # sentencepiece writes a space as U+2581, in its symbols too.
    user_defined_symbols=[
      *(marker.replace(" ", "\u2581") for marker in MARKERS),
      *(str(number) for number in range(10, 100)),
    ],
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    minloglevel=2,
  )
  (folder / "tokenizer.vocab").unlink()
  return folder / "tokenizer.model"
