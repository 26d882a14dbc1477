"""Turns a row into the text of its prompt."""

from collections.abc import Callable, Sequence
from typing import Any

from azr_jax.models.tokenizers import Message, Tokenizer
from azr_jax.tasks import chats
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.table.reading import Row
from azr_jax.tasks.table.settings import AUTO, ON, TableSettings


def is_chat(settings: TableSettings, tokenizer: Tokenizer) -> bool:
  """Returns whether to write prompts in the model's chat template.

  Raises:
    ValueError: the settings need a chat template, but the model has none, or
      they have arguments for a template that is not used.
  """
  if settings.chat == ON and not tokenizer.has_chat_template:
    raise ValueError(
      f"chat={settings.chat!r}: the model has no chat template: expected "
      "'auto' or 'off', or a model with a chat template"
    )
  is_chat = settings.chat == ON or (
    settings.chat == AUTO and tokenizer.has_chat_template
  )
  if settings.chat_template_kwargs and not is_chat:
    raise settings.invalid(
      "chat_template_kwargs",
      "'' unless prompts are written in a model's chat template",
    )
  return is_chat


def messages(
  prompt: str | Sequence[Message], system_prompt: str
) -> list[dict[str, Any]]:
  """Converts a prompt to messages; adds the system prompt unless it has one."""
  found = chats.as_messages(prompt)
  if system_prompt and found[0]["role"] != chats.SYSTEM:
    found.insert(0, {"role": chats.SYSTEM, "content": system_prompt})
  return found


def check(
  row: Row,
  settings: TableSettings,
  tokenizer: Tokenizer,
  say: Callable[[str], None],
) -> None:
  """Tries the chat template, if it is used, on what a row needs.

  Args:
    row: a row with the prefill, and with the system message if rows have one.
    settings: how prompts are written.
    tokenizer: the model's tokenizer.
    say: prints warnings.

  Raises:
    ValueError: see `Chat.check`.
  """
  if is_chat(settings, tokenizer):
    first = messages(row.prompt, settings.system_prompt)[0]
    system = first["content"] if first["role"] == chats.SYSTEM else ""
    Chat(tokenizer, settings.arguments, row.prefill).check(say, system)


def text(row: Row, settings: TableSettings, tokenizer: Tokenizer) -> str:
  """Returns the text of a row's prompt, which the model continues.

  Without a chat template, the text consists of the system prompt, an empty
  line, the row's prompt and its prefill.

  Raises:
    ValueError: the row has messages but there is no chat template, or the
      template rejects them.
  """
  if is_chat(settings, tokenizer):
    chat = Chat(tokenizer, settings.arguments, row.prefill)
    return chat.prompt(messages(row.prompt, settings.system_prompt))
  if not isinstance(row.prompt, str):
    raise ValueError(
      f"{row.prompt!r:.80}: messages need a model with a chat template and "
      "chat='auto' or 'on': expected text in the column, or a prompt_template"
    )
  text = f"{row.prompt}{row.prefill}"
  return (
    f"{settings.system_prompt}\n\n{text}" if settings.system_prompt else text
  )
