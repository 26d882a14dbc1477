"""The configuration of a server that trains."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.serving.settings import ServeSettings


@dataclasses.dataclass(frozen=True)
class TrainingServerSettings(Settings):
  """Section `training`: the limits of models that clients train."""

  max_rank: int = setting(
    32, "maximum rank of adapters; memory of sampling grows with it", minimum=1
  )
  max_adapters: int = setting(
    8, "adapters that the sampler holds at once; others wait", minimum=1
  )
  max_models: int = setting(
    16, "models that clients may train at once", minimum=1
  )
  row_length: int = setting(
    0, "maximum tokens of a datum; 0: the sampler's longest", minimum=0
  )
  micro_rows: int = setting(4, "rows that are computed together", minimum=1)
  max_sequences_per_row: int = setting(
    32, "maximum sequences in a row", minimum=1, expert=True
  )
  chunk_tokens: int = setting(
    2048, "tokens whose logits are in memory at once", minimum=1
  )
  idle_s: float = setting(
    300.0, "a session without a sign of life for so long is ended", above=0
  )


@dataclasses.dataclass(frozen=True)
class TrainServeSettings(ServeSettings):
  """The configuration of `azr_jax.serve --train`."""

  training: TrainingServerSettings = TrainingServerSettings()
