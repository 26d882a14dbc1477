"""Turns a row into the text of its prompt."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from azr_jax.config.settings import Invalid
from azr_jax.models.tokenizers import Message, Tokenizer
from azr_jax.tasks import chats
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.table.reading import Row

# Whether prompts are written in the model's chat template.
AUTO, ON, OFF = CHATS = "auto", "on", "off"


@dataclasses.dataclass(frozen=True)
class PromptWriter:
  """Writes the prompts of rows.

  Attributes:
    chat: one of `CHATS`; `AUTO` uses the model's chat template if there is one.
    system_prompt: the system message of prompts without one; "" adds none.
    template_arguments: extra arguments of the chat template, by name.
  """

  chat: str = AUTO
  system_prompt: str = ""
  template_arguments: Mapping[str, Any] = dataclasses.field(
    default_factory=dict
  )

  def is_chat(self, tokenizer: Tokenizer) -> bool:
    """Returns whether to write prompts in the model's chat template.

    Raises:
      ValueError: a chat template is required, but the model has none, or there
        are arguments for a template that is not used.
    """
    if self.chat == ON and not tokenizer.has_chat_template:
      raise ValueError(
        f"chat={self.chat!r}: the model has no chat template: expected "
        "'auto' or 'off', or a model with a chat template"
      )
    is_chat = self.chat == ON or (
      self.chat == AUTO and tokenizer.has_chat_template
    )
    if self.template_arguments and not is_chat:
      raise Invalid(
        "chat_template_kwargs",
        f"={json.dumps(self.template_arguments)!r}: expected '' unless prompts "
        "are written in a model's chat template",
      )
    return is_chat

  def messages(self, prompt: str | Sequence[Message]) -> list[dict[str, Any]]:
    """Converts a prompt to messages; adds the system prompt if it has none."""
    found = chats.as_messages(prompt)
    if self.system_prompt and found[0]["role"] != chats.SYSTEM:
      found.insert(0, {"role": chats.SYSTEM, "content": self.system_prompt})
    return found

  def check(
    self, row: Row, tokenizer: Tokenizer, say: Callable[[str], None]
  ) -> None:
    """Tries the chat template, if it is used, on what a row needs.

    Args:
      row: a row with the prefill, and with the system message if rows have one.
      tokenizer: the model's tokenizer.
      say: prints warnings.

    Raises:
      ValueError: see `Chat.check`.
    """
    if self.is_chat(tokenizer):
      first = self.messages(row.prompt)[0]
      system = first["content"] if first["role"] == chats.SYSTEM else ""
      Chat(tokenizer, self.template_arguments, row.prefill).check(say, system)

  def text(self, row: Row, tokenizer: Tokenizer) -> str:
    """Returns the text of a row's prompt, which the model continues.

    Without a chat template, the text consists of the system prompt, an empty
    line, the row's prompt and its prefill.

    Raises:
      ValueError: the row has messages but there is no chat template, or the
        template rejects them.
    """
    if self.is_chat(tokenizer):
      chat = Chat(tokenizer, self.template_arguments, row.prefill)
      return chat.prompt(self.messages(row.prompt))
    if not isinstance(row.prompt, str):
      raise ValueError(
        f"{row.prompt!r:.80}: messages need a model with a chat template and "
        "chat='auto' or 'on': expected text in the column, or a prompt_template"
      )
    text = f"{row.prompt}{row.prefill}"
    return f"{self.system_prompt}\n\n{text}" if self.system_prompt else text
