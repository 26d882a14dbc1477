"""What an environment is: tasks, and episodes that answer the model's replies.

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

There is one object for each episode. Python's and NumPy's random generators are
seeded by the task before `begin`, and every episode has its own state of them,
so that a replay of the same replies gives the same turns.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from azr_jax.text import contents

# `role` and `content`; a tool's output has the role "tool", and a `name`.
Message = Mapping[str, Any]
# A message of the user, or messages.
Shown = str | Sequence[Message]


@dataclasses.dataclass(frozen=True)
class Turn:
  """What an environment answers to a reply.

  Attributes:
    messages: what the model is shown before its next reply.
    reward: of this turn; the episode's reward is the sum over its turns.
    is_done: whether the episode is over.
    metrics: further numbers of the episode by name; the last turn's value of
      a name is logged.
  """

  messages: Shown = ""
  reward: float = 0.0
  is_done: bool = False
  metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Observation:
  """How an episode begins.

  Attributes:
    messages: the prompt.
    tools: JSON schemas of the tools that the model may call, as in OpenAI's
      requests.
  """

  messages: Sequence[Message]
  tools: Sequence[Mapping[str, Any]] = ()


class Environment(Protocol):
  """What a class of a user has; `finish` and `close` may be missing."""

  def tasks(self) -> Iterable[Mapping[str, Any]]:
    """Returns the tasks, as JSON values."""
    ...

  def begin(self, task: Mapping[str, Any]) -> Shown:
    """Begins the object's episode; returns the prompt."""
    ...

  def step(self, reply: str) -> Turn:
    """Answers a reply of the model."""
    ...


class Episode(Protocol):
  """An episode as the server plays it."""

  def begin(self) -> Observation:
    """Begins it; called once."""
    ...

  def step(self, reply: str, is_cut: bool) -> Turn:
    """Answers a reply; `is_cut`: it has no end, for want of room."""
    ...

  def finish(self) -> Turn:
    """Ends an episode that the model has no room to continue."""
    ...

  def close(self) -> None:
    """Frees what it holds."""
    ...


@dataclasses.dataclass(frozen=True)
class Kit:
  """Where tasks and episodes come from.

  Attributes:
    tasks: limit -> the tasks, at most so many; 0: all.
    make: task -> its episode.
  """

  tasks: Callable[[int], Sequence[Mapping[str, Any]]]
  make: Callable[[Mapping[str, Any]], Episode]


def messages(shown: Shown) -> list[dict[str, Any]]:
  """Returns what is shown as messages whose contents are texts.

  Raises:
    TypeError: an item is not a message.
    ValueError: a content is not text, such as an image.
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
