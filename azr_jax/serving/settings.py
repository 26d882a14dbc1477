"""The configuration of `azr_jax.serve`."""

import dataclasses

from azr_jax.config.settings import setting
from azr_jax.tasks.chats import TemplateSettings
from azr_jax.trainer.settings import SamplingSettings


@dataclasses.dataclass(frozen=True)
class LimitSettings(TemplateSettings):
  """What a client may ask for, and what the server takes on.

  The chat template gets these arguments and those of the request.
  """

  max_waiting: int = setting(
    256,
    "completions that may wait for a slot; beyond, requests get status 429",
    minimum=0,
    expert=True,
  )
  max_logprobs: int = setting(
    20,
    "likeliest tokens that a request may ask for in each place, as OpenAI; 0: "
    "none, and no program is compiled that finds them",
    minimum=0,
    expert=True,
  )
  read_s: float = setting(
    30.0,
    "time limit for the head of a request, and again for its body; an idle "
    "connection is closed after it, seconds",
    above=0,
    expert=True,
  )
  timeout_s: float = setting(
    600.0, "time until a request gets status 503, seconds", above=0
  )
  drain_s: float = setting(
    30.0,
    "time for which requests that run go on after SIGTERM or Ctrl-C, seconds",
    minimum=0,
    expert=True,
  )
  poll_s: float = setting(
    2.0,
    "time between two looks for a checkpoint (--follow), seconds; up to five "
    "minutes after looks that failed",
    above=0,
    expert=True,
  )


@dataclasses.dataclass(frozen=True)
class ServeSettings(SamplingSettings):
  """A configuration of `azr_jax.serve`."""

  serve: LimitSettings = LimitSettings()
