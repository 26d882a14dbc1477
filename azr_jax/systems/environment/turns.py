"""Renders an environment's messages for the model.

Messages after a reply are rendered by the chat template and tokenized
separately from the reply. A conversation therefore keeps the sampled tokens,
and the model sees what it would see in a chat. Without a chat template, the
model sees the plain contents, one per line.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from azr_jax.models.tokenizers import Tokenizer
from azr_jax.run import console
from azr_jax.tasks.chats import Chat

Messages = Sequence[Mapping[str, Any]]
# A placeholder reply, to find the template's text after it.
_REPLY = "\N{WHITE SQUARE}reply\N{WHITE SQUARE}"
_ELLIPSIS = "\n...\n"
_TOOLS = (
  "You may call these tools. To call one, answer with "
  '<tool_call>{"name": NAME, "arguments": {...}}</tool_call>.\n'
)


class TurnWriter:
  """Renders prompts and turns for one model."""

  def __init__(
    self,
    tokenizer: Tokenizer,
    max_output_tokens: int,
    system_prompt: str = "",
    template_arguments: Mapping[str, Any] | None = None,
    prefill: str = "",
    say: Callable[[str], None] = console.print_status,
  ):
    """Makes a writer.

    Args:
      tokenizer: the model's tokenizer.
      max_output_tokens: the maximum tokens of a message after a reply.
      system_prompt: the system message of conversations without one; empty
        adds none.
      template_arguments: extra arguments of the chat template, by name.
      prefill: the start of every reply, which the model continues.
      say: prints a warning about the chat template.

    Raises:
      ValueError: the model's chat template does not use the given arguments.
    """
    self._tokenizer = tokenizer
    self._limit = max_output_tokens
    self._system = system_prompt
    self._prefill = prefill
    self._writer = Chat(tokenizer, template_arguments, prefill)
    if tokenizer.has_chat_template or template_arguments:
      self._writer.check(say, system_prompt)

  def prompt(self, messages: Messages, tools: Messages = ()) -> str:
    """Returns the text up to the first reply.

    Args:
      messages: at least one, with role and content. If the last message is the
        assistant's, the model continues it.
      tools: the schemas of tools that the model may call.

    Raises:
      ValueError: the chat template rejects the messages.
    """
    first = [dict(message) for message in messages]
    if self._system and first[0]["role"] != "system":
      first.insert(0, {"role": "system", "content": self._system})
    if not self._tokenizer.has_chat_template:
      told = _told(first, tools)
      return "\n".join(message["content"] for message in told) + self._prefill
    text = self._chat(first, tools)
    # Templates without tool support ignore the tools; describe them instead.
    if tools and text == self._chat(first):
      text = self._chat(_told(first, tools))
    return text

  def turn(self, messages: Messages, has_end: bool) -> list[int]:
    """Returns the token ids between a reply and the next one; at least one.

    Args:
      messages: the environment's messages.
      has_end: whether the reply ends with an EOS token.

    Raises:
      ValueError: the chat template rejects the messages.
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
    else:  # Without messages or prefill, the previous reply is simply closed.
      text = self._writer.write(before)
    _, _, text = text.rpartition(_REPLY)
    ids = self._tokenizer.encode(text)
    if has_end and ids[0] in self._tokenizer.eos_ids:
      ids = ids[1:]
    return ids

  def _chat(self, messages: Messages, tools: Messages = ()) -> str:
    """Applies the chat template; falls back from role `tool` to `user`."""
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
    """Returns a text without its middle if it is too long."""
    ids = self._tokenizer.encode(text)
    if len(ids) <= self._limit:
      return text
    head = self._limit // 2
    tail = self._limit - head
    parts = ids[:head], ids[-tail:]
    return _ELLIPSIS.join(self._tokenizer.decode(part) for part in parts)


def _told(messages: Messages, tools: Messages) -> list[Mapping[str, Any]]:
  """Returns messages with the tools described in the system message."""
  if not tools:
    return list(messages)
  text = _TOOLS + "\n".join(json.dumps(tool) for tool in tools)
  if messages[0]["role"] != "system":
    return [{"role": "system", "content": text}, *messages]
  first = {**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}
  return [first, *messages[1:]]
