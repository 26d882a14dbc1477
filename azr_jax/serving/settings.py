"""The configuration of `azr_jax.serve`."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.tasks.chats import TemplateSettings
from azr_jax.trainer.settings import SamplingSettings


@dataclasses.dataclass(frozen=True)
class LimitSettings(TemplateSettings):
  """Limits on requests and on the server's load.

  A request's template arguments override the ones set here.
  """

  max_waiting: int = setting(
    256,
    "maximum number of waiting completions; further requests get status 429",
    minimum=0,
    expert=True,
  )
  max_logprobs: int = setting(
    20,
    "maximum `top_logprobs` of a request (OpenAI: 20); 0 turns scoring off and "
    "compiles no program for it",
    minimum=0,
    expert=True,
  )
  read_s: float = setting(
    30.0,
    "time limit for a request's head, and again for its body; idle connections "
    "are closed after it, seconds",
    above=0,
    expert=True,
  )
  timeout_s: float = setting(
    600.0, "time after which a request gets status 503, seconds", above=0
  )
  drain_s: float = setting(
    30.0,
    "time for running requests to finish after SIGTERM or Ctrl-C, seconds",
    minimum=0,
    expert=True,
  )
  poll_s: float = setting(
    2.0,
    "time between polls for a checkpoint (--follow), seconds; up to five "
    "minutes after failed polls",
    above=0,
    expert=True,
  )


@dataclasses.dataclass(frozen=True)
class TinkerSettings(Settings):
  """Section `tinker`: the limits of models that clients train."""

  max_rank: int = setting(
    32, "maximum rank of adapters; memory of sampling grows with it", minimum=1
  )
  max_adapters: int = setting(
    8, "adapters that the sampler holds at once; others wait", minimum=1
  )
  max_models: int = setting(
    64, "models that clients may train at once", minimum=1
  )
  max_snapshots: int = setting(
    32,
    "weights of sampling clients that the host keeps for each session; a new "
    "client closes the oldest",
    minimum=1,
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
class ServeSettings(SamplingSettings):
  """The configuration of `azr_jax.serve`."""

  serve: LimitSettings = LimitSettings()
  tinker: TinkerSettings = TinkerSettings()
