"""Environments of GEM (`gem-llm`), run unchanged.

A task is a seed for `reset`. An episode's reward is the sum over its steps. GEM
is an optional dependency, so it is imported on first use.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from azr_jax.environments import protocol
from azr_jax.environments.protocol import Kit, Observation, Turn

# Number of tasks if there is no limit.
_TASKS = 1000
_SEED = "seed"


def load(name: str, arguments: Mapping[str, Any]) -> Kit:
  """Returns an environment of GEM's registry.

  Raises:
    ValueError: GEM has no such environment.
    ModuleNotFoundError: GEM, or a package that it needs, is missing.
  """
  gem: Any = importlib.import_module("gem")
  importlib.import_module("gem.envs")
  try:
    gem.make(name, **arguments)
  except (ValueError, ImportError, TypeError, AssertionError) as error:
    raise ValueError(f"gem:{name}: {error}") from error
  return Kit(
    lambda limit: [{_SEED: seed} for seed in range(limit or _TASKS)],
    lambda task: _Episode(gem.make(name, **arguments), task[_SEED]),
  )


class _Episode:
  """An episode of an environment with `reset` and `step`."""

  def __init__(self, environment: Any, seed: int):
    self._environment, self._seed = environment, seed
    self._steps = 0

  def begin(self) -> Observation:
    """Resets the environment with the task's seed."""
    shown, info = self._environment.reset(seed=self._seed)
    return Observation(protocol.messages(_text(shown, info)))

  def step(self, reply: str, is_cut: bool) -> Turn:
    """Takes a step with a reply."""
    shown, reward, terminated, truncated, info = self._environment.step(reply)
    self._steps += 1
    return Turn(
      _text(shown, info),
      float(reward),
      bool(terminated or truncated),
      {"steps": self._steps, "solved": float(terminated and reward > 0)},
    )

  def finish(self) -> Turn:
    """Returns an empty last turn without reward."""
    return Turn(is_done=True)

  def close(self) -> None:
    """Closes the environment if it has a `close` method."""
    close = getattr(self._environment, "close", None)
    if close is not None:
      close()


def _text(shown: Any, info: Mapping[str, Any]) -> str:
  """Returns an observation with the suffix that GEM's wrappers append."""
  suffix = info.get("suffix", "")
  return f"{shown}\n{suffix}" if suffix else str(shown)
