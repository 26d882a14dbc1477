"""The units of metrics, derived from their names."""

import re
from collections.abc import Collection

FRACTION = "fraction"
# The first pattern that matches the whole name sets the unit; "" is unknown.
_UNITS = (
  (r"time/verdict_early_fraction", FRACTION),
  (r".*fraction(/.*)?", FRACTION),
  (r".*/pass@1/.*", FRACTION),
  (r"correct(_by_task)?/.*|formatted/.*|self_check/.*", FRACTION),
  (r"learnability/.*/solve_rate|.*/mfu|.*/probability/.*", FRACTION),
  (r"learnability/.*/mean", "reward"),
  (r"time/interpreter_.*", ""),
  (r"time/.*", "seconds"),
  (r".*/tokens_per_s", "tokens / s"),
  (r"tokens(_per_turn)?/.*|.*[/_]tokens", "tokens"),
  (r"reward/.*|style/.*_reward|evaluation/.*/reward|format/.*", "reward"),
  (r"learner/entropy.*|.*logprob_gap.*|learner/kl.*", "nats"),
  (r"executor/.*", "programs"),
  (r"interpreter/(calls|ok|error|timeout)", "scripts"),
  (r"calls/.*/mean", "scripts"),
  (r"num_turns/.*", "turns"),
  (r"count/.*", "trajectories"),
  (r"buffer/.*/size", "tasks"),
  (r"proposals/.*/rejected_.*", "proposals"),
  (r"compile/.*", "programs"),
)


def unit(name: str) -> str:
  """Returns the unit of a metric, or "" if it has none or it is unknown."""
  return next((u for pattern, u in _UNITS if re.fullmatch(pattern, name)), "")


def common(names: Collection[str]) -> str:
  """Returns the unit that all metrics share, or ""."""
  found = {unit(name) for name in names}
  return found.pop() if len(found) == 1 else ""
