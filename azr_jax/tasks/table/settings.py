"""Settings for reading rows: where they are, and how to make prompts."""

import dataclasses

from azr_jax.config.settings import setting
from azr_jax.tasks.chats import ChatSettings
from azr_jax.tasks.table.prompts import AUTO, CHATS, PromptWriter
from azr_jax.tasks.table.reading import RowReader


@dataclasses.dataclass(frozen=True)
class TableSettings(ChatSettings):
  """Where rows come from, and how a row becomes a prompt."""

  data: str = setting(
    "",
    "comma-separated sources of rows: .jsonl, .json, .csv, .parquet, "
    "tfds:NAME/SPLIT, hf:OWNER/NAME:SPLIT, embedded:sums",
  )
  limit: int = setting(
    0, "maximum number of rows per source; 0: all", minimum=0
  )
  prompt_column: str = setting(
    "prompt",
    "column with the prompt: text, or messages with role and content",
    required=True,
  )
  prompt_template: str = setting(
    "",
    "template of the prompt with columns in braces, such as 'Solve "
    "{question}'; '': use prompt_column",
  )
  system_prompt: str = setting(
    "", "system message, put before each prompt; '': none"
  )
  chat: str = setting(
    AUTO,
    "whether to write prompts in the model's chat template; auto: if there is "
    "one",
    choices=CHATS,
  )
  continue_final_message: bool = setting(
    False,
    "whether the model continues a row's final assistant message; otherwise "
    "the message is an answer, which the prompt leaves out",
  )

  @property
  def reader(self) -> RowReader:
    """Reads rows, and finds the prompt of each."""
    return RowReader(
      self.prompt_column,
      self.prompt_template,
      self.continue_final_message,
      self.prefill,
      self.limit,
    )

  @property
  def writer(self) -> PromptWriter:
    """Writes the prompts of rows."""
    return PromptWriter(self.chat, self.system_prompt, self.arguments)
