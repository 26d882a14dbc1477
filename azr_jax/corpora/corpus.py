"""The interface between supervised training and any corpus."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Sequence

from azr_jax.models.tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True)
class Conversation:
  """A prompt and the turns that follow it.

  Attributes:
    prompt: the text of the prompt.
    turns: assistant turns and tool outputs, alternating. The first and the last
      are assistant turns, and only assistant turns are trained on.
  """

  prompt: str
  turns: tuple[str, ...]

  def tokens(self, tokenizer: Tokenizer) -> tuple[list[int], list[bool]]:
    """Returns the token ids and a loss mask of the same length.

    The prompt and each turn are encoded separately, as in sampling. The
    tokenizer's first EOS token is appended and trained on.
    """
    ids = tokenizer.encode_prompt(self.prompt)
    loss_mask = [False] * len(ids)
    for index, turn in enumerate(self.turns):
      turn_ids = tokenizer.encode(turn)
      ids = ids + turn_ids
      loss_mask += [index % 2 == 0] * len(turn_ids)
    return [*ids, tokenizer.eos_ids[0]], [*loss_mask, True]


def _accept(tokenizer: Tokenizer, say: Callable[[str], None]) -> None:
  del tokenizer, say


@dataclasses.dataclass(frozen=True)
class Corpus:
  """Conversations, and the function that trains a tokenizer for them.

  Attributes:
    conversations: the conversations in any order; training shuffles them.
    train_tokenizer: trains a tokenizer on texts, writes it to a folder and
      returns the path of its file.
    check: prints a warning if the model's tokenizer does not suit the corpus,
      for example if its chat template changes the prefill.
  """

  conversations: Sequence[Conversation]
  train_tokenizer: Callable[[Iterable[str], pathlib.Path], pathlib.Path]
  check: Callable[[Tokenizer, Callable[[str], None]], None] = _accept


def from_pairs(pairs: Sequence[tuple[str, str]]) -> list[Conversation]:
  """Returns a conversation for each pair of prompt and response."""
  # Record files do not raise the IndexError that ends an iteration, so pairs
  # are read by index.
  indexed = (pairs[index] for index in range(len(pairs)))
  return [Conversation(prompt, (response,)) for prompt, response in indexed]
