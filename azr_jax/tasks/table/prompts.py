"""Writes the prompt of a row as the text that a model reads."""

from collections.abc import Mapping, Sequence

from azr_jax.models.tokenizers import Message, Tokenizer
from azr_jax.tasks.table.reading import Row
from azr_jax.tasks.table.settings import AUTO, ON, TableSettings


def is_chat(settings: TableSettings, tokenizer: Tokenizer) -> bool:
  """Returns whether prompts are written in the model's chat template.

  Raises:
    ValueError: they should be, and the model has none.
  """
  if settings.chat == ON and not tokenizer.has_chat_template:
    raise ValueError(
      f"chat={settings.chat!r}: the model has no chat template: expected "
      "'auto' or 'off', or a model that was trained on chats"
    )
  return settings.chat == ON or (
    settings.chat == AUTO and tokenizer.has_chat_template
  )


def messages(
  prompt: str | Sequence[Message], system_prompt: str
) -> list[Mapping[str, str]]:
  """Returns a prompt as messages, behind the system prompt if it has none."""
  if isinstance(prompt, str):
    prompt = [{"role": "user", "content": prompt}]
  if system_prompt and prompt[0]["role"] != "system":
    return [{"role": "system", "content": system_prompt}, *prompt]
  return list(prompt)


def text(row: Row, settings: TableSettings, tokenizer: Tokenizer) -> str:
  """Returns the text of a row's prompt, up to where the response begins.

  Without a chat template, a text stays as it is, behind the system prompt and
  an empty line.

  Raises:
    ValueError: the row has messages, and the model no chat template, or the
      template refuses them.
  """
  if is_chat(settings, tokenizer):
    return tokenizer.apply_chat_template(
      messages(row.prompt, settings.system_prompt)
    )
  if not isinstance(row.prompt, str):
    raise ValueError(
      f"{row.prompt!r:.80}: messages need a model with a chat template and "
      "chat='auto' or 'on'; expected a column of texts, or prompt_template"
    )
  if settings.system_prompt:
    return f"{settings.system_prompt}\n\n{row.prompt}"
  return row.prompt
