"""Episodes of a prompt and tools: the model replies until it calls none."""

from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.environments import protocol, tool_calls, tools
from azr_jax.environments.protocol import Kit, Observation, Turn
from azr_jax.functions import spec as spec_lib
from azr_jax.functions.spec import Function

# The key of a task that has its messages.
MESSAGES = "messages"


def load(functions: Sequence[Function], max_calls: int) -> Kit:
  """Returns the episodes in which the model may call functions.

  Args:
    functions: the tools.
    max_calls: calls of an episode; one more reply follows the last.

  Raises:
    ValueError: a function is not found, or is no tool.
  """
  made = [tools.make(spec_lib.find(function)) for function in functions]
  by_name = {tool.name: tool for tool in made}
  if len(by_name) < len(made):
    raise ValueError(f"tools {[tool.name for tool in made]}: a name is twice")
  return Kit(lambda _: [], lambda task: _ToolUse(task, by_name, max_calls))


class _ToolUse:
  """An episode in which replies may call tools."""

  def __init__(
    self,
    task: Mapping[str, Any],
    by_name: Mapping[str, tools.Tool],
    max_calls: int,
  ):
    self._task, self._tools, self._left = task, by_name, max_calls
    self._calls = self._errors = 0

  def begin(self) -> Observation:
    """Returns the task's messages and the tools."""
    schemas = [tool.schema for tool in self._tools.values()]
    return Observation(protocol.messages(self._task[MESSAGES]), schemas)

  def step(self, reply: str, is_cut: bool) -> Turn:
    """Runs the calls of a reply; without any, the episode is over."""
    calls, _ = tool_calls.find(reply)
    if is_cut or not calls or not self._left:
      return self.finish()
    outputs = []
    for call in calls[: self._left]:
      text, is_error = tools.run(self._tools, call)
      self._calls += 1
      self._errors += is_error
      name = call.name or "unknown"
      outputs.append({"role": "tool", "name": name, "content": text})
    self._left -= len(outputs)
    return Turn(outputs, metrics=self._metrics())

  def finish(self) -> Turn:
    """Returns the counts of calls; the reward comes from elsewhere."""
    return Turn(is_done=True, metrics=self._metrics())

  def _metrics(self) -> dict[str, float]:
    return {"calls": self._calls, "tool_errors": self._errors}

  def close(self) -> None:
    """Holds nothing."""
