"""Writes the messages of an environment as the model reads them.

Messages that follow a reply are written as the chat template writes them
between that reply and the next one, and tokenised apart from it. So a
conversation has the tokens that were sampled, and the model reads what it would
read in a chat. A model without a chat template reads the plain contents, each
on a line of its own.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.models.tokenizers import Tokenizer
from azr_jax.tasks.chats import Chat, ChatSettings

Messages = Sequence[Mapping[str, Any]]
# Stands for a reply while the text behind it is looked up.
_REPLY = "\N{WHITE SQUARE}reply\N{WHITE SQUARE}"
_ELLIPSIS = "\n...\n"
_TOOLS = (
  "You may call these tools. To call one, answer with "
  '<tool_call>{"name": NAME, "arguments": {...}}</tool_call>.\n'
)


class TurnWriter:
  """Writes prompts and turns for one model."""

  def __init__(
    self,
    tokenizer: Tokenizer,
    max_output_tokens: int,
    system_prompt: str = "",
    settings: ChatSettings | None = None,
  ):
    """Makes a writer.

    Args:
      tokenizer: the model's tokenizer.
      max_output_tokens: longest message behind a reply.
      system_prompt: of conversations without a system message; "": none.
      settings: arguments of the chat template, and how replies begin.

    Raises:
      ValueError: there are arguments, and the model's chat template does not
        use them.
    """
    settings = settings or ChatSettings()
    self._tokenizer = tokenizer
    self._limit = max_output_tokens
    self._system = system_prompt
    self._prefill = settings.prefill
    self._writer = Chat(tokenizer, settings.arguments, settings.prefill)
    if tokenizer.has_chat_template or settings.arguments:
      self._writer.check()

  def prompt(self, messages: Messages, tools: Messages = ()) -> str:
    """Returns the text up to the first reply.

    Args:
      messages: at least one, with role and content. The model continues a last
        message of the assistant.
      tools: schemas of the tools that the model may call.

    Raises:
      ValueError: the chat template refuses the messages.
    """
    first = [dict(message) for message in messages]
    if self._system and first[0]["role"] != "system":
      first.insert(0, {"role": "system", "content": self._system})
    if not self._tokenizer.has_chat_template:
      told = _told(first, tools)
      return "\n".join(message["content"] for message in told) + self._prefill
    text = self._chat(first, tools)
    # A template that knows no tools leaves them out.
    if tools and text == self._chat(first):
      text = self._chat(_told(first, tools))
    return text

  def turn(self, messages: Messages, has_end: bool) -> list[int]:
    """Returns the token ids between a reply and the next one; at least one.

    Args:
      messages: the environment's answer.
      has_end: whether the reply's last token is an EOS token.

    Raises:
      ValueError: the chat template refuses the messages.
    """
    short = [
      {**message, "content": self._cut(message["content"])}
      for message in messages
    ]
    if not self._tokenizer.has_chat_template:
      text = "".join(f"\n{message['content']}" for message in short)
      return self._tokenizer.encode(text + self._prefill)
    before = [
      {"role": "user", "content": "-"},
      {"role": "assistant", "content": _REPLY},
    ]
    if short:
      text = self._chat([*before, *short])
    elif self._prefill:
      text = self._chat([*before, {"role": "assistant", "content": ""}])
    else:  # The last reply is complete, so it is not continued.
      text = self._writer.write(before)
    _, _, text = text.rpartition(_REPLY)
    ids = self._tokenizer.encode(text)
    if has_end and ids[0] in self._tokenizer.eos_ids:
      ids = ids[1:]
    return ids

  def _chat(self, messages: Messages, tools: Messages = ()) -> str:
    """Applies the chat template; where it has no role `tool`, it is a user."""
    try:
      return self._writer.prompt(messages, tools)
    except ValueError:
      if not any(message["role"] == "tool" for message in messages):
        raise
    told = [
      {**message, "role": "user"} if message["role"] == "tool" else message
      for message in messages
    ]
    return self._writer.prompt(told, tools)

  def _cut(self, text: str) -> str:
    """Returns a text, without its middle if it is long."""
    ids = self._tokenizer.encode(text)
    if len(ids) <= self._limit:
      return text
    head = self._limit // 2
    tail = self._limit - head
    parts = ids[:head], ids[-tail:]
    return _ELLIPSIS.join(self._tokenizer.decode(part) for part in parts)


def _told(messages: Messages, tools: Messages) -> list[Mapping[str, Any]]:
  """Returns messages that begin with what tools there are."""
  if not tools:
    return list(messages)
  text = _TOOLS + "\n".join(json.dumps(tool) for tool in tools)
  if messages[0]["role"] != "system":
    return [{"role": "system", "content": text}, *messages]
  first = {**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}
  return [first, *messages[1:]]
