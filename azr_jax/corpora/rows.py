"""Your own conversations, for supervised training.

| a row has | trained on |
| --- | --- |
| a prompt and a completion | the completion |
| messages with role and content | every assistant message |

A model's chat template writes the conversation if it has one. The token that
ends a turn is trained on, too. A prefill belongs to the prompt, so it is not
trained on, even if a completion repeats it.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from azr_jax.config.settings import setting
from azr_jax.corpora.corpus import Conversation
from azr_jax.models import tokenizer_training
from azr_jax.models.tokenizers import Message, Tokenizer
from azr_jax.tasks.chats import ASSISTANT, Chat
from azr_jax.tasks.table import prompts, reading
from azr_jax.tasks.table.reading import Row
from azr_jax.tasks.table.settings import TableSettings

# The maximum for a new tokenizer, of which 256 are bytes.
_VOCAB_SIZE = 512


@dataclasses.dataclass(frozen=True)
class RowCorpusSettings(TableSettings):
  """Section `rows` of supervised training: prompts and completions."""

  completion_column: str = setting(
    "completion",
    "column of the response; not needed for rows of messages that end with the "
    "assistant's",
    required=True,
  )


@dataclasses.dataclass(frozen=True)
class RowConversation(Conversation):
  """A conversation that a chat template can write.

  Attributes:
    row: the prompt.
    answer: the messages from the first assistant message on.
    settings: how prompts are written.
  """

  row: Row = dataclasses.field(kw_only=True)
  answer: tuple[Message, ...] = dataclasses.field(kw_only=True)
  settings: RowCorpusSettings = dataclasses.field(kw_only=True)

  def tokens(self, tokenizer: Tokenizer) -> tuple[list[int], list[bool]]:
    """Returns token ids and loss mask, as `Conversation` does.

    Raises:
      ValueError: the row has messages but the model has no chat template.
    """
    settings = self.settings
    if prompts.is_chat(settings, tokenizer):
      prefills = [self.row.prefill] + [settings.prefill] * len(self.answer)
      return _chat_tokens(
        prompts.messages(self.row.prompt, settings.system_prompt),
        self.answer,
        prefills,
        tokenizer,
        Chat(tokenizer, settings.arguments),
      )
    text = prompts.text(self.row, settings, tokenizer)
    first, *rest = self.turns
    turns = (first.removeprefix(self.row.prefill), *rest)
    return Conversation(text, turns).tokens(tokenizer)


def _chat_tokens(
  before: Sequence[Message],
  answer: Sequence[Message],
  prefills: Iterable[str],
  tokenizer: Tokenizer,
  chat: Chat,
) -> tuple[list[int], list[bool]]:
  """Returns token ids and loss mask of a chat, turn by turn as in sampling.

  Of the text that the template writes between two assistant messages, only the
  token that ends a turn is trained on.

  Args:
    before: the messages before the first assistant message.
    answer: the other messages. The first and the last are the assistant's.
    prefills: the prefill of each assistant message, which is not trained on.
    tokenizer: the model's tokenizer.
    chat: applies the chat template.
  """
  messages: list[Message] = [*before, *answer]
  left = iter(prefills)
  ids: list[int] = []
  mask: list[bool] = []
  written = ""
  for index, message in enumerate(messages):
    if message["role"] != ASSISTANT:
      continue
    prefill = next(left)
    own_text = message["content"].removeprefix(prefill)
    messages[index] = {**message, "content": f"{prefill}{own_text}"}
    begun = [{**message, "content": prefill}] if prefill else []
    text = chat.write([*messages[:index], *begun], is_continued=bool(prefill))
    if not text.startswith(written):
      raise ValueError(
        "the chat template changes earlier messages: expected conversations "
        "with one assistant message"
      )
    encode = tokenizer.encode if ids else tokenizer.encode_prompt
    between = encode(text[len(written) :])
    ends = bool(ids) and bool(between) and between[0] in tokenizer.eos_ids
    own = tokenizer.encode(own_text)
    ids += [*between, *own]
    mask += [ends, *[False] * (len(between) - 1), *[True] * len(own)]
    written = text + own_text
  return [*ids, tokenizer.eos_ids[0]], [*mask, True]


def conversations(settings: RowCorpusSettings) -> list[RowConversation]:
  """Reads the rows as conversations.

  Raises:
    ValueError: the data cannot be read, or a row has no completion.
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
  row: Row, settings: RowCorpusSettings, where: str
) -> tuple[Message, ...]:
  """Returns the messages of a row's completion."""
  columns: Mapping[str, Any] = row.columns
  completion = columns.get(settings.completion_column)
  if isinstance(completion, str):
    return ({"role": ASSISTANT, "content": completion},)
  # TRL's format, which Parquet returns as a NumPy array.
  if isinstance(completion, Sequence | np.ndarray) and len(completion):
    return reading.messages_of(
      completion, f"{where}, column {settings.completion_column!r}"
    )
  if not isinstance(row.prompt, str) and not settings.continue_final_message:
    every = reading.messages_of(columns[settings.prompt_column], where)
    if len(every) > len(row.prompt):
      return every[len(row.prompt) :]
  raise ValueError(
    f"{where}: expected a text in column {settings.completion_column!r}, or "
    f"messages that end with the assistant's; its columns are {list(columns)}"
  )


def train_tokenizer(texts: Iterable[str], folder: pathlib.Path) -> pathlib.Path:
  """Trains the tokenizer of a tiny model and returns the path of its file."""
  return tokenizer_training.train(texts, (), _VOCAB_SIZE, folder)
