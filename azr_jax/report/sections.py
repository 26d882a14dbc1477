"""Which metrics are drawn, and where on the page.

A chart is a pattern of metrics' whole names; its groups are the series' label.
What no chart here takes is drawn under `OTHERS`, a chart per family, so
every system has its page.
"""

import dataclasses

from azr_jax.run.metrics import HEALTHY


@dataclasses.dataclass(frozen=True)
class Chart:
  """A title, the metrics in it, what they look like when all is well."""

  title: str
  pattern: str
  healthy: str = ""
  missing: float | None = None  # In a step that does not say.


def _measure(title: str, name: str) -> Chart:
  return Chart(title, rf"program/[^/]+/(.+)/{name}")


OTHERS = "Everything else"
LEARNABILITY, TIME = "Learnability", "Time"
# The phases of a step that follow each other, of AZR and of the others.
PHASES = (
  ("seed", "propose", "learnability", "solve", "measures", "update"),
  ("collect", "update"),
)
SOLVED = r"learnability/[^/]+/(.+)/solved_(\d+)_of_(\d+)"
SECTIONS: dict[str, tuple[Chart, ...]] = {
  "Rewards": (
    Chart("Reward", r"reward/[^/]+/(.+)/mean", "rises"),
    Chart(
      "Share of right answers", r"correct/[^/]+/(.+)/mean", HEALTHY["correct"]
    ),
    Chart("Right, by task", r"correct_by_task/(.+)"),
    Chart(
      "Share well formed", r"formatted/[^/]+/(.+)/mean", HEALTHY["formatted"]
    ),
    Chart("Spread of the reward", r"reward/[^/]+/(.+)/std"),
  ),
  "Evaluation in training": (
    Chart("pass@1", r"evaluation/(.+)/pass@1/unbiased", HEALTHY["evaluation"]),
    Chart("pass@1, by part", r"evaluation/(.+/pass@1/.+)"),
    Chart("More of it", r"evaluation/(.+)"),
  ),
  "Lengths": (
    Chart(
      "Tokens of a completion", r"tokens/[^/]+/(.+)/mean", HEALTHY["tokens"]
    ),
    Chart("Share cut off", r"tokens/[^/]+/(.+)/truncated_share"),
  ),
  "Complexity and diversity of proposals": (
    _measure("Cognitive complexity", "cognitive"),
    _measure("Cyclomatic complexity", "cyclomatic"),
    _measure("Halstead effort", "effort"),
    _measure("Halstead volume", "volume"),
    _measure("Maintainability", "maintainability"),
    _measure("Distance to the references", "distance"),
    _measure("Diversity of answers", "answer_diversity"),
    _measure("Gold minus answer, complexity", "gold_minus_answer"),
  ),
  LEARNABILITY: (
    Chart(
      "Solve rate of proposals",
      r"learnability/[^/]+/(.+)/solve_rate",
      HEALTHY["learnability"],
    ),
    Chart("Never solved", r"learnability/[^/]+/(.+)/never_solved_share"),
    Chart("Learnability", r"learnability/[^/]+/(.+)/mean"),
  ),
  "Proposals and buffers": (
    Chart(
      "Share of valid proposals",
      r"proposals/[^/]+/(.+)/valid_share",
      HEALTHY["proposals"],
    ),
    Chart("Rejected", r"proposals/[^/]+/(.+)/rejected_(.+)", missing=0.0),
    Chart("Duplicates", r"proposals/[^/]+/(.+)/duplicate_share"),
    Chart("Tasks in a buffer", r"buffer/[^/]+/(.+)/size", HEALTHY["buffer"]),
    Chart("Found in the last 50 steps", r"buffer/[^/]+/(.+)/fresh_share"),
  ),
  "Conversations with code": (
    Chart(
      "Scripts of a conversation", r"calls/[^/]+/(.+)/mean", HEALTHY["calls"]
    ),
    Chart("Without any script", r"calls/[^/]+/(none_share)"),
    Chart(
      "Check an answer by a script",
      r"self_check/[^/]+/(.+)/mean",
      HEALTHY["self_check"],
    ),
    Chart(
      "Replies of a conversation",
      r"replies/[^/]+/(.+)/mean",
      HEALTHY["replies"],
    ),
    Chart(
      "Slots and overlap",
      "interpreter/(slots_writing|slots_waiting|overlap_share)",
      HEALTHY["interpreter"],
    ),
    Chart("Scripts run", "interpreter/(calls|ok|error|timeout)"),
    Chart("Stage", "stage/[^/]+/(number)", HEALTHY["stage"]),
    Chart("Questions of a stage's groups", "stage/[^/]+/(group.+)"),
    Chart(
      "Groups that teach nothing",
      r"groups/[^/]+/(equal_share)",
      HEALTHY["groups"],
    ),
  ),
  "Executor": (
    Chart(
      "Verdicts",
      "executor/(ok|error|timeout|blocked|nondeterministic)",
      HEALTHY["executor"],
    ),
    Chart("Programs", "executor/(programs)"),
  ),
  TIME: (Chart("Waiting", r"time/(.*wait.*)", HEALTHY["time"]),),
  "Learner": (
    Chart("Entropy", "learner/(entropy)", HEALTHY["learner"]),
    Chart("Norm of the gradient", "learner/(grad_norm)"),
    Chart("Share of clipped ratios", "learner/(.*clip.*)"),
    Chart("Loss", "learner/(.*loss.*)"),
    Chart(
      "Sampler against learner", "rollout/(logprob_gap)", HEALTHY["rollout"]
    ),
    Chart("Critic", "critic/(.+)", HEALTHY["critic"]),
  ),
  "Safety": (Chart("Flagged", "safety/(.+)", HEALTHY["safety"]),),
}
