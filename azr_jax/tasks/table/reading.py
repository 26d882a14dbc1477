"""Reads the rows of a user's own data.

A row is a dictionary with one value per column. `RowReader` finds the prompt in
it. Graders receive all columns by name.
"""

import dataclasses
import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from azr_jax.config import user_files
from azr_jax.config.settings import Invalid
from azr_jax.models.tokenizers import Message
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.tasks import records
from azr_jax.tasks.chats import ASSISTANT, USER
from azr_jax.tasks.table import sums
from azr_jax.text import contents

EMBEDDED = {"sums": sums.rows}


@dataclasses.dataclass(frozen=True)
class Row:
  """A prompt and the data for its graders.

  Attributes:
    prompt: a text, or the chat messages before the reply.
    columns: all values of the row, by column name.
    source: the index of the row's source.
    prefill: the start of the reply, which the model continues.
  """

  prompt: str | tuple[Message, ...]
  columns: Mapping[str, Any]
  source: int = 0
  prefill: str = ""

  @property
  def question(self) -> str:
    """The prompt, or its last message of the user; "" if there is none."""
    if isinstance(self.prompt, str):
      return self.prompt
    asked = (m["content"] for m in reversed(self.prompt) if m["role"] == USER)
    return contents.text(next(asked, ""))


def sources(data: str) -> list[str]:
  """Splits a comma-separated list of sources."""
  return [part.strip() for part in data.split(",") if part.strip()]


@dataclasses.dataclass(frozen=True)
class RowReader:
  """Reads rows, and finds the prompt of each.

  Attributes:
    prompt_column: the column with the prompt: a text or messages.
    prompt_template: a template of the prompt with columns in braces; "" uses
      `prompt_column`.
    continue_final_message: whether the model continues a row's final assistant
      message. Otherwise the prompt leaves it out.
    prefill: the start of every reply.
    limit: the maximum number of rows per source; 0 for all.
  """

  prompt_column: str = "prompt"
  prompt_template: str = ""
  continue_final_message: bool = False
  prefill: str = ""
  limit: int = 0

  def read(self, data: str) -> list[Row]:
    """Returns the rows of all sources, one source after another.

    Args:
      data: comma-separated sources.

    Raises:
      ValueError: a source cannot be read, is empty, or lacks the column.
    """
    rows = []
    for number, source in enumerate(sources(data)):
      found = self.of_records(_records(source), source, number)
      if not found:
        raise ValueError(f"{source}: expected at least one row")
      rows += found
    return rows

  def of_records(
    self, found: Iterable[Any], source: str = "data", number: int = 0
  ) -> list[Row]:
    """Converts records to rows, up to the limit.

    Args:
      found: the records, which must be dictionaries.
      source: the name of the source, for errors.
      number: the index of the source.

    Raises:
      ValueError: a record is not a dictionary, or has no prompt.
    """
    rows = []
    for index, record in enumerate(found):
      if self.limit and index == self.limit:
        break
      where = f"{source}, row {index + 1}"
      if not isinstance(record, Mapping):
        raise ValueError(
          f"{where}: {record!r:.80} is not a row: expected an object with "
          "columns"
        )
      with user_files.reading(where, "a row"):
        prompt, prefill = self._prompt(record, where)
      prefill += self.prefill
      rows.append(Row(prompt, dict(record), number, prefill))
    return rows

  def answers_left_out(self, rows: Sequence[Row]) -> int:
    """Returns the number of rows whose prompt leaves out a final answer."""
    return sum(
      not isinstance(row.prompt, str)
      and not self.continue_final_message
      and len(row.columns[self.prompt_column]) > len(row.prompt)
      for row in rows
    )

  def _prompt(
    self, record: Mapping[str, Any], where: str
  ) -> tuple[str | tuple[Message, ...], str]:
    """Returns a record's prompt and its prefill, if it contains one."""
    if self.prompt_template:
      try:
        return self.prompt_template.format_map(record), ""
      except (KeyError, IndexError, AttributeError, ValueError) as error:
        raise ValueError(
          f"{where}: prompt_template={self.prompt_template!r} cannot be "
          f"filled ({type(error).__name__}: {error}): expected columns from "
          f"{list(record)}; double literal braces"
        ) from error
    name = self.prompt_column
    if name not in record:
      near = difflib.get_close_matches(name, record, n=1, cutoff=0.5)
      hint = f"; did you mean {near[0]!r}?" if near else ""
      raise Invalid(
        "prompt_column",
        f"={name!r}: {where} has no such column: expected one of "
        f"{list(record)}{hint}",
      )
    value = record[name]
    if isinstance(value, str):
      return value, ""
    where = f"{where}, column {name!r}"
    asked = list(messages_of(value, where))
    prefill = ""
    if self.continue_final_message and _is_answer(asked):
      prefill = asked.pop()["content"]
    while _is_answer(asked):
      asked.pop()
    if not asked:
      raise ValueError(f"{where}: expected a message before the assistant's")
    return tuple(asked), prefill


def _records(source: str) -> Iterable[Any]:
  kind, _, name = source.partition(":")
  if kind != "embedded":
    return records.read(source)
  if name not in EMBEDDED:
    raise ValueError(
      f"{source!r}: expected embedded: and one of {tuple(EMBEDDED)}"
    )
  return EMBEDDED[name]()


def _is_answer(messages: Sequence[Message]) -> bool:
  """Returns whether the last message is the assistant's."""
  return bool(messages) and messages[-1]["role"] == ASSISTANT


def messages_of(value: Any, where: str) -> tuple[Message, ...]:
  """Converts a column's value to messages with string contents.

  Raises:
    ValueError: the value is not a list of messages, or a content is not text.
  """
  if isinstance(value, np.ndarray):
    value = value.tolist()
  if not isinstance(value, Sequence) or not value:
    raise ValueError(_no_messages(value, where))
  messages = []
  for message in value:
    if not isinstance(message, Mapping) or not isinstance(
      message.get("role"), str
    ):
      raise ValueError(_no_messages(value, where))
    try:
      content = contents.text(message.get("content"))
    except ValueError as error:
      raise ValueError(f"{where}: {error}") from error
    messages.append({"role": message["role"], "content": content})
  return tuple(messages)


def _no_messages(value: Any, where: str) -> str:
  return (
    f"{where}: {value!r:.80}: expected a text, or messages with role and "
    "content"
  )


def digest(rows: Sequence[Row]) -> str:
  """Returns a hash of all values of the rows."""
  state = hashlib.blake2b(digest_size=8)
  for row in rows:
    values = [row.prompt, row.columns, row.prefill]
    text = json.dumps(values, sort_keys=True, default=str)
    state.update(text.encode())
  return state.hexdigest()


def hold_out(
  rows: Sequence[Row], fraction: float, seed: int
) -> tuple[list[Row], list[Row]]:
  """Splits rows into training and held-out rows.

  Args:
    fraction: the fraction of rows to hold out. At least one row is held out if
      it is above 0.
    seed: the seed for choosing the held-out rows.
  """
  if not fraction:
    return list(rows), []
  count = max(1, round(fraction * len(rows)))
  rng = streams.generator(seed, Purpose.HELD_OUT_ROWS)
  chosen = {*rng.permutation(len(rows))[:count].tolist()}
  kept = [row for index, row in enumerate(rows) if index not in chosen]
  return kept, [rows[index] for index in sorted(chosen)]
