"""The settings of whoever reads rows: where they are, and what is a prompt."""

import dataclasses

from azr_jax.config.settings import setting
from azr_jax.tasks.chats import ChatSettings

# Whether prompts are written in the chat template of the model.
AUTO, ON, OFF = CHATS = "auto", "on", "off"


@dataclasses.dataclass(frozen=True)
class TableSettings(ChatSettings):
  """Rows, and how a row becomes a prompt."""

  data: str = setting(
    "",
    "comma-separated sources of rows: .jsonl, .json, .csv, .parquet, "
    "tfds:NAME/SPLIT, hf:OWNER/NAME:SPLIT, embedded:sums",
  )
  limit: int = setting(
    0, "maximum number of rows of each source; 0: all", minimum=0
  )
  prompt_column: str = setting(
    "prompt",
    "column of the prompt: a text, or messages with role and content",
    required=True,
  )
  prompt_template: str = setting(
    "", "makes the prompt of columns, such as 'Solve {question}'; '': as it is"
  )
  system_prompt: str = setting("", "first message of a chat; '': none")
  chat: str = setting(
    AUTO,
    "whether prompts are written in the model's chat template; auto: if it has "
    "one",
    choices=CHATS,
  )
  continue_final_message: bool = setting(
    False,
    "whether the model continues a row's last message of the assistant; "
    "otherwise it is an answer, which prompts leave out",
  )
