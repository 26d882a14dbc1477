"""A user's own conversations, for supervised training.

| a row has | what is trained on |
| --- | --- |
| a prompt and a completion | the completion |
| messages with role and content | each message of the assistant |

With a chat template, a conversation is written by it, and the token that ends a
turn is trained on, too.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from azr_jax.config.settings import setting
from azr_jax.corpora.corpus import Conversation
from azr_jax.models import tokenizer_training
from azr_jax.models.tokenizers import Message, Tokenizer
from azr_jax.tasks.table import prompts, reading
from azr_jax.tasks.table.reading import Row
from azr_jax.tasks.table.settings import TableSettings

_ASSISTANT = "assistant"
# The maximum of a new tokenizer; 256 of it are bytes.
_VOCAB_SIZE = 512


@dataclasses.dataclass(frozen=True)
class CorpusSettings(TableSettings):
  """Section `rows` of supervised training: the data, and what is answered."""

  completion_column: str = setting(
    "completion",
    "column of the response; rows whose prompts are messages that end with the "
    "assistant's need none",
    required=True,
  )


@dataclasses.dataclass(frozen=True)
class RowConversation(Conversation):
  """A conversation that a chat template may write.

  Attributes:
    row: the prompt.
    answer: messages from the first one of the assistant.
    settings: how prompts are written.
  """

  row: Row = dataclasses.field(kw_only=True)
  answer: tuple[Message, ...] = dataclasses.field(kw_only=True)
  settings: CorpusSettings = dataclasses.field(kw_only=True)

  def tokens(self, tokenizer: Tokenizer) -> tuple[list[int], list[bool]]:
    """Returns token ids and loss mask, as `Conversation` does.

    Raises:
      ValueError: the row has messages, and the model no chat template.
    """
    if prompts.is_chat(self.settings, tokenizer):
      return _chat_tokens(
        prompts.messages(self.row.prompt, self.settings.system_prompt),
        self.answer,
        tokenizer,
      )
    text = prompts.text(self.row, self.settings, tokenizer)
    return Conversation(text, self.turns).tokens(tokenizer)


def _chat_tokens(
  before: Sequence[Message], answer: Sequence[Message], tokenizer: Tokenizer
) -> tuple[list[int], list[bool]]:
  """Returns ids and mask of a chat, turn by turn as in sampling.

  What the template writes between two messages of the assistant is not trained
  on, but for the token that ends a turn.

  Args:
    before: messages before the first one of the assistant.
    answer: the others; the first and the last are the assistant's.
    tokenizer: has a chat template.
  """
  messages = [*before, *answer]
  ids: list[int] = []
  mask: list[bool] = []
  written = ""
  for index, message in enumerate(messages):
    if message["role"] != _ASSISTANT:
      continue
    text = tokenizer.apply_chat_template(messages[:index])
    if not text.startswith(written):
      raise ValueError(
        "the chat template changes earlier messages: expected conversations "
        "with one message of the assistant"
      )
    encode = tokenizer.encode if ids else tokenizer.encode_prompt
    between = encode(text[len(written) :])
    ends = bool(ids) and bool(between) and between[0] in tokenizer.eos_ids
    own = tokenizer.encode(message["content"])
    ids += [*between, *own]
    mask += [ends, *[False] * (len(between) - 1), *[True] * len(own)]
    written = text + message["content"]
  return [*ids, tokenizer.eos_ids[0]], [*mask, True]


def conversations(settings: CorpusSettings) -> list[RowConversation]:
  """Reads the rows as conversations.

  Raises:
    ValueError: the data cannot be read, or a row has no answer.
  """
  if not settings.data:
    raise ValueError(
      "config.rows.data='': expected a file of rows, or a source"
    )
  found = []
  for number, row in enumerate(reading.read(settings), 1):
    answer = _answer(row, settings, f"{settings.data}, row {number}")
    found.append(
      RowConversation(
        row.prompt if isinstance(row.prompt, str) else "",
        tuple(message["content"] for message in answer),
        row=row,
        answer=answer,
        settings=settings,
      )
    )
  return found


def _answer(
  row: Row, settings: CorpusSettings, where: str
) -> tuple[Message, ...]:
  """Returns the messages of an answer."""
  columns: Mapping[str, Any] = row.columns
  completion = columns.get(settings.completion_column)
  if isinstance(completion, str):
    return ({"role": _ASSISTANT, "content": completion},)
  if isinstance(completion, Sequence) and completion:  # TRL's layout.
    return tuple(completion)
  if not isinstance(row.prompt, str):
    last = columns[settings.prompt_column][len(row.prompt) :]
    if len(last):
      return tuple(last)
  raise ValueError(
    f"{where}: expected a text in column {settings.completion_column!r}, or "
    f"messages that end with the assistant's; its columns are {list(columns)}"
  )


def train_tokenizer(texts: Iterable[str], folder: pathlib.Path) -> pathlib.Path:
  """Trains the tokenizer of a tiny model and returns its file's path."""
  return tokenizer_training.train(texts, (), _VOCAB_SIZE, folder)
