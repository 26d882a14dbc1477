"""Formats conversations with a chat template, up to the start of the reply.

| conversation | text |
| --- | --- |
| ends with an assistant message | stops inside this message, so that the model
  continues it |
| starts with a system message that the template refuses or drops | the first
  user message starts with the system message |
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from azr_jax.config import user_files
from azr_jax.config.settings import Settings, setting
from azr_jax.models.tokenizers import Message, Tokenizer
from azr_jax.text import contents

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
_SHOWN_CHARS = 60


def is_object(text: str) -> bool:
  try:
    return not text or isinstance(user_files.parse_json(text), dict)
  except ValueError:
    return False


@dataclasses.dataclass(frozen=True)
class TemplateSettings(Settings):
  """Chat template inputs other than the messages."""

  chat_template_kwargs: str = setting(
    "",
    "extra arguments of the chat template as a JSON object, such as "
    "'{\"enable_thinking\": false}'; '': none",
    accepts=(
      is_object,
      "a JSON object, such as '{\"enable_thinking\": false}', or ''",
    ),
    expert=True,
  )

  @property
  def arguments(self) -> dict[str, Any]:
    """The arguments by name."""
    return json.loads(self.chat_template_kwargs or "{}")


@dataclasses.dataclass(frozen=True)
class ChatSettings(TemplateSettings):
  """How to write prompts as chats."""

  prefill: str = setting(
    "",
    "start of every reply; the model continues it, and graders see it as part "
    "of the response; '': none",
    expert=True,
  )


class Chat:
  """Formats conversations for one model."""

  def __init__(
    self,
    tokenizer: Tokenizer,
    arguments: Mapping[str, Any] | None = None,
    prefill: str = "",
  ):
    """Stores the arguments without validation; `check` validates them.

    Args:
      tokenizer: the tokenizer with the chat template.
      arguments: extra arguments of the template, by name.
      prefill: the start of the reply to every `prompt`.
    """
    self._tokenizer = tokenizer
    self._arguments = arguments or {}
    self._prefill = prefill

  def check(self, say: Callable[[str], None], system: str = "") -> None:
    """Tries the arguments, the prefill and a system message.

    Args:
      say: prints a warning if the template has no system role, changes the
        prefill or inserts text before it.
      system: the text of a system message; "" if conversations have none.

    Raises:
      ValueError: the template rejects the arguments, or cannot end inside a
        reply.
    """
    if system:
      first, ask = {"role": SYSTEM, "content": system}, as_messages("-")
      if _place_system([first, *ask], self._template())[1]:
        say(
          "the chat template has no system role: the system message is "
          "prepended to the first user message"
        )
    if not (self._arguments or self._prefill):
      return
    text = self.prompt("-")
    asked = Chat(self._tokenizer, self._arguments).prompt("-")
    # Some templates start replies with the same text as the prefill.
    if self._prefill and text not in (asked, asked + self._prefill):
      say(
        f"the chat template changes prefill={self._prefill!r}: prompts end "
        f"with {text[-_SHOWN_CHARS:]!r}"
      )

  def prompt(
    self,
    messages: str | Sequence[Message],
    tools: Sequence[Mapping[str, Any]] = (),
  ) -> str:
    """Returns the text that the model continues with its reply.

    Args:
      messages: a user message, or messages with role and content. If the last
        message is the assistant's, the model continues it.
      tools: schemas of the tools that the model may call.

    Raises:
      ValueError: the model has no chat template, or the template rejects the
        messages or the arguments.
    """
    found = as_messages(messages)
    if self._prefill:
      if found[-1]["role"] != ASSISTANT:
        found.append({"role": ASSISTANT, "content": ""})
      found[-1]["content"] += self._prefill
    return self.write(found, tools, is_continued=found[-1]["role"] == ASSISTANT)

  def write(
    self,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] = (),
    is_answered: bool = False,
    is_continued: bool = False,
  ) -> str:
    """Formats messages; see `Tokenizer.apply_chat_template`."""
    write = self._template(
      is_answered=is_answered, tools=tools, is_continued=is_continued
    )
    if messages[0]["role"] != SYSTEM:
      return write(messages)
    return _place_system(messages, write)[0]

  def _template(self, **options: Any) -> Callable[[Sequence[Message]], str]:
    """Returns a function that formats messages with the template."""
    return functools.partial(
      self._tokenizer.apply_chat_template, arguments=self._arguments, **options
    )


def as_messages(messages: str | Sequence[Message]) -> list[dict[str, Any]]:
  """Converts a user message, or messages, to messages with string contents.

  Raises:
    ValueError: a message has content that is not text.
  """
  if isinstance(messages, str):
    return [{"role": USER, "content": messages}]
  return [{**m, "content": contents.text(m["content"])} for m in messages]


def _folded(messages: Sequence[Message]) -> list[Message]:
  """Merges the system message into the first user message."""
  system, *rest = messages
  if not rest or rest[0]["role"] != USER:
    return [{**system, "role": USER}, *rest]
  content = f"{system['content']}\n\n{rest[0]['content']}"
  return [{**rest[0], "content": content}, *rest[1:]]


def _place_system(
  messages: Sequence[Message], write: Callable[[Sequence[Message]], str]
) -> tuple[str, bool]:
  """Formats messages that start with a system message.

  Returns:
    The text, and whether the system message is in the first user message
    because the template has no system role.
  """
  system = messages[0]["content"].strip()
  try:
    text = write(messages)
  except ValueError:
    text = None
  if text is not None and system in text:
    return text, False
  folded = write(_folded(messages))
  if text is not None and system not in folded:
    # The template rewrites the system text wherever it is.
    return text, False
  return folded, True
