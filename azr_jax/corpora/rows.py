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
from azr_jax.tasks.table import reading
from azr_jax.tasks.table.prompts import PromptWriter
from azr_jax.tasks.table.reading import Row, RowReader
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
    writer: writes the prompt.
    prefill: the start of every assistant message.
  """

  row: Row = dataclasses.field(kw_only=True)
  answer: tuple[Message, ...] = dataclasses.field(kw_only=True)
  writer: PromptWriter = dataclasses.field(kw_only=True)
  prefill: str = dataclasses.field(default="", kw_only=True)

  def tokens(self, tokenizer: Tokenizer) -> tuple[list[int], list[bool]]:
    """Returns token ids and loss mask, as `Conversation` does.

    Raises:
      ValueError: the row has messages but the model has no chat template.
    """
    writer = self.writer
    if writer.is_chat(tokenizer):
      prefills = [self.row.prefill] + [self.prefill] * len(self.answer)
      return _chat_tokens(
        writer.messages(self.row.prompt),
        self.answer,
        prefills,
        tokenizer,
        Chat(tokenizer, writer.template_arguments),
      )
    text = writer.text(self.row, tokenizer)
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


def conversations(
  data: str, completion_column: str, reader: RowReader, writer: PromptWriter
) -> list[RowConversation]:
  """Reads the rows as conversations.

  Args:
    data: comma-separated sources of rows.
    completion_column: the column of the response.
    reader: reads the rows.
    writer: writes the prompts.

  Raises:
    ValueError: the data cannot be read, or a row has no completion.
  """
  if not data:
    raise ValueError(
      "config.rows.data='': expected a file of rows, or a source"
    )
  found = []
  for number, row in enumerate(reader.read(data), 1):
    answer = _answer(row, completion_column, reader, f"{data}, row {number}")
    found.append(
      RowConversation(
        row.prompt if isinstance(row.prompt, str) else "",
        tuple(message["content"] for message in answer),
        row=row,
        answer=answer,
        writer=writer,
        prefill=reader.prefill,
      )
    )
  return found


def _answer(
  row: Row, completion_column: str, reader: RowReader, where: str
) -> tuple[Message, ...]:
  """Returns the messages of a row's completion."""
  columns: Mapping[str, Any] = row.columns
  completion = columns.get(completion_column)
  if isinstance(completion, str):
    return ({"role": ASSISTANT, "content": completion},)
  # TRL's format, which Parquet returns as a NumPy array.
  if isinstance(completion, Sequence | np.ndarray) and len(completion):
    return reading.messages_of(
      completion, f"{where}, column {completion_column!r}"
    )
  if not isinstance(row.prompt, str) and not reader.continue_final_message:
    every = reading.messages_of(columns[reader.prompt_column], where)
    if len(every) > len(row.prompt):
      return every[len(row.prompt) :]
  raise ValueError(
    f"{where}: expected a text in column {completion_column!r}, or "
    f"messages that end with the assistant's; its columns are {list(columns)}"
  )


def train_tokenizer(texts: Iterable[str], folder: pathlib.Path) -> pathlib.Path:
  """Trains the tokenizer of a tiny model and returns the path of its file."""
  return tokenizer_training.train(texts, (), _VOCAB_SIZE, folder)
