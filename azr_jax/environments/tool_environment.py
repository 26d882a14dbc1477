"""The base class of environments in which the model can call functions.

class Shop(ToolEnvironment):
  tools = (price,)  # def price(item: str) -> float

  def tasks(self):
    return [{"item": "tea", "answer": "4"}]

  def begin(self, task):
    self.answer = task["answer"]
    return f"What do two packets of {task['item']} cost?"

  def grade(self, reply):
    return float(self.answer in reply)
"""

from collections.abc import Callable, Sequence
from typing import Any

from azr_jax.environments.protocol import Turn
from azr_jax.tools import function_tool, tool_calls


class ToolEnvironment:
  """Runs tool calls; a reply without one ends the episode.

  Attributes:
    tools: functions with typed parameters.
    max_calls: maximum number of calls per episode. A reply after the last call
      is graded.
  """

  tools: Sequence[Callable[..., Any]] = ()
  max_calls = 8
  _calls = 0
  _errors = 0

  def grade(self, reply: str) -> float:
    """Returns the reward of a reply that calls no tool."""
    raise NotImplementedError

  def step(self, reply: str) -> Turn:
    """Runs the tool calls in a reply, or grades it if it has none."""
    calls, _ = tool_calls.find(reply)
    left = self.max_calls - self._calls
    if not calls or not left:
      return Turn(
        reward=self.grade(reply), is_done=True, metrics=self._metrics()
      )
    by_name = {tool.name: tool for tool in map(function_tool.make, self.tools)}
    outputs = []
    for call in calls[:left]:
      text, is_error = function_tool.run(by_name, call)
      self._calls += 1
      self._errors += is_error
      name = call.name or "unknown"
      outputs.append({"role": "tool", "name": name, "content": text})
    return Turn(outputs, metrics=self._metrics())

  def _metrics(self) -> dict[str, float]:
    return {"calls": self._calls, "tool_errors": self._errors}
