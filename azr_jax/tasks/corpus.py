"""What supervised training needs of a corpus, whatever it is about."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Sequence


@dataclasses.dataclass(frozen=True)
class Corpus:
  """Conversations of one exchange, and how to make a tokenizer for them.

  Attributes:
    pairs: prompt and reply of each.
    train_tokenizer: texts and a folder -> the path of the tokenizer's file.
  """

  pairs: Sequence[tuple[str, str]]
  train_tokenizer: Callable[[Iterable[str], pathlib.Path], pathlib.Path]
