"""What supervised training needs of a corpus, whatever it is about."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Sequence


@dataclasses.dataclass(frozen=True)
class Conversation:
  """A prompt and what follows it.

  Attributes:
    prompt: what is asked.
    parts: what the model writes and what it is answered, in turn; the first
      and the last are the model's, and only the model's are learned.
  """

  prompt: str
  parts: tuple[str, ...]

  def tokens(
    self, encode: Callable[[str], list[int]], end: int
  ) -> tuple[list[int], list[bool]]:
    """The ids with `end` after them, and which of them are learned.

    Every part is made tokens by itself, as it is when it is sampled.
    """
    ids = encode(self.prompt)
    learned = [False] * len(ids)
    for place, part in enumerate(self.parts):
      own = encode(part)
      ids = ids + own
      learned += [place % 2 == 0] * len(own)
    return [*ids, end], [*learned, True]


@dataclasses.dataclass(frozen=True)
class Corpus:
  """Conversations, and how to make a tokenizer for them.

  Attributes:
    conversations: in any order; training shuffles them.
    train_tokenizer: texts and a folder -> the path of the tokenizer's file.
  """

  conversations: Sequence[Conversation]
  train_tokenizer: Callable[[Iterable[str], pathlib.Path], pathlib.Path]


def of_pairs(pairs: Sequence[tuple[str, str]]) -> list[Conversation]:
  """Conversations of a prompt and one reply each."""
  # By index: files of records know no end that iteration would find.
  found = (pairs[index] for index in range(len(pairs)))
  return [Conversation(prompt, (reply,)) for prompt, reply in found]
