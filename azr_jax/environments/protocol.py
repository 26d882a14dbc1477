"""The interface of an environment: tasks, and episodes that step on replies.

  from azr_jax.environments import Turn

  class Guess:
    def tasks(self):
      return [{"number": number} for number in range(1, 21)]

    def begin(self, task):
      self.number = task["number"]
      return "Guess a number from 1 to 20."

    def step(self, reply):
      if reply.strip() == str(self.number):
        return Turn(reward=1.0, is_done=True)
      return Turn("No. Guess again.")

Each episode has its own object and its own state of Python's and NumPy's random
generators, seeded by the task before `begin`. A replay of the same replies
therefore gives the same turns.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from azr_jax.text import contents

# Has `role` and `content`. A tool's output has role "tool", and a `name`.
Message = Mapping[str, Any]
# The text of a user message, or messages.
Shown = str | Sequence[Message]


@dataclasses.dataclass(frozen=True)
class Turn:
  """An environment's answer to a reply.

  Attributes:
    messages: messages to show the model before its next reply.
    reward: the reward of this turn. An episode's reward is the sum over its
      turns.
    is_done: whether the episode is over.
    metrics: further metrics of the episode by name. The value in the last turn
      is logged.
  """

  messages: Shown = ""
  reward: float = 0.0
  is_done: bool = False
  metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Observation:
  """The start of an episode.

  Attributes:
    messages: the prompt.
    tools: JSON schemas of the tools that the model may call, in OpenAI's
      format.
  """

  messages: Sequence[Message]
  tools: Sequence[Mapping[str, Any]] = ()


class Environment(Protocol):
  """The methods of a user's class. It may also have `finish` and `close`."""

  def tasks(self) -> Iterable[Mapping[str, Any]]:
    """Returns the tasks as JSON values."""
    ...

  def begin(self, task: Mapping[str, Any]) -> Shown:
    """Starts the episode and returns the prompt."""
    ...

  def step(self, reply: str) -> Turn:
    """Returns the answer to a reply of the model."""
    ...


class Episode(Protocol):
  """An episode as the server runs it."""

  def begin(self) -> Observation:
    """Starts the episode. Called once."""
    ...

  def step(self, reply: str, is_cut: bool) -> Turn:
    """Returns the answer to a reply; `is_cut` if the reply was truncated."""
    ...

  def finish(self) -> Turn:
    """Ends an episode because the model's context is full."""
    ...

  def close(self) -> None:
    """Frees the episode's resources."""
    ...


@dataclasses.dataclass(frozen=True)
class Kit:
  """A source of tasks and episodes.

  Attributes:
    tasks: returns at most the given number of tasks, or all for 0.
    make: makes the episode of a task.
  """

  tasks: Callable[[int], Sequence[Mapping[str, Any]]]
  make: Callable[[Mapping[str, Any]], Episode]


def messages(shown: Shown) -> list[dict[str, Any]]:
  """Returns a text or messages as messages whose contents are texts.

  Raises:
    TypeError: an item is not a message.
    ValueError: a content is not text, for example an image.
  """
  if isinstance(shown, str):
    return [{"role": "user", "content": shown}] if shown else []
  found = []
  for message in shown:
    if not isinstance(message, Mapping) or "role" not in message:
      raise TypeError(f"{message!r:.80}: expected a message with a role")
    content = message.get("content")
    # A message that only calls tools has no content.
    content = "" if content is None else contents.text(content)
    names = {k: str(message[k]) for k in ("name",) if message.get(k)}
    found.append({"role": str(message["role"]), "content": content, **names})
  return found
