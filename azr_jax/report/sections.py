"""The sections of the page, their charts, and the metrics of each chart.

A chart's pattern matches whole metric names; the pattern's groups are the
labels of the series. Metrics without a chart are drawn in the section `OTHERS`,
one chart per family, so metrics of a new system appear without a change here.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chart:
  """A chart.

  Attributes:
    title: the caption.
    pattern: a regular expression for the metrics' names.
    family: the family of metrics whose healthy values are described below the
      chart, or "".
    missing: the value for steps that did not log the metric, or None.
    panels: whether each metric has its own figure.
    unit: the unit of the metrics. "" derives it from their names.
  """

  title: str
  pattern: str
  family: str = ""
  missing: float | None = None
  panels: bool = False
  unit: str = ""


def _program_metric(title: str, name: str) -> Chart:
  return Chart(title, rf"program/[^/]+/(.+)/{name}")


OTHERS = "Everything else"
LEARNABILITY, TIME = "Learnability", "Time"
PHASES = ("collect", "update")  # the consecutive phases of a step
# Rewards by task type and role.
TYPED_REWARD = r"reward/[^/]+/([^/]+)/([^/]+)/mean"
BY_TYPE = "Rewards and lengths by type and role"
# Section -> (system, note below the section's title for runs of that system).
PAPER_FIGURES = {
  BY_TYPE: ("azr", "As figures 15 to 17 of AZR (arXiv 2505.03335)."),
  "Evaluation in training": ("azr", "As figure 14 of AZR (arXiv 2505.03335)."),
  "Complexity and diversity of proposals": (
    "azr",
    "As figure 27 of AZR (arXiv 2505.03335).",
  ),
}
SOLVED = r"learnability/[^/]+/(.+)/solved_(\d+)_of_(\d+)"
# Charts that show learning, best evidence first. The page starts with the
# first one that its runs have.
MAIN = (
  Chart("Held-out problems solved", r"evaluation/(.+)/pass@1/unbiased"),
  Chart("Held-out reward", r"evaluation/(.+)/reward"),
  Chart("Correct responses in training", r"correct/[^/]+/(.+)/mean"),
  Chart("Reward in training", r"reward/[^/]+/(.+)/mean"),
)
SECTIONS: dict[str, tuple[Chart, ...]] = {
  "Rewards": (
    Chart("Reward", r"reward/[^/]+/(.+)/mean", family="reward"),
    Chart(
      "Fraction of correct responses",
      r"correct/[^/]+/(.+)/mean",
      family="correct",
    ),
    Chart("Correct, by task", r"correct_by_task/(.+)"),
    Chart("Timeouts", r"correct/[^/]+/(.+)/timeout_fraction"),
    Chart(
      "Fraction of well-formed responses",
      r"formatted/[^/]+/(.+)/mean",
      family="formatted",
    ),
    Chart("Standard deviation of the reward", r"reward/[^/]+/(.+)/std"),
    Chart(
      "Groups with equal rewards",
      r"groups/[^/]+/equal_fraction",
      family="groups",
    ),
  ),
  "Evaluation in training": (
    Chart(
      "pass@1",
      r"evaluation/(.+)/pass@1/unbiased",
      family="evaluation",
      panels=True,
    ),
    Chart(
      "pass@1, of first responses or a subset",
      r"evaluation/(.+/pass@1/.+)(?<!_stderr)",
    ),
    Chart("Other scores", r"evaluation/(.+)(?<!_stderr)"),
  ),
  "Lengths": (
    Chart("Tokens per completion", r"tokens/[^/]+/(.+)/mean", family="tokens"),
    Chart("Fraction truncated", r"tokens/[^/]+/(.+)/truncated_fraction"),
  ),
  "Complexity and diversity of proposals": (
    _program_metric("Cognitive complexity", "cognitive"),
    _program_metric("Cyclomatic complexity", "cyclomatic"),
    _program_metric("Halstead effort", "effort"),
    _program_metric("Halstead volume", "volume"),
    _program_metric("Maintainability", "maintainability"),
    _program_metric("Distance to the references", "distance"),
    _program_metric("Diversity of answers", "answer_diversity"),
    _program_metric("Gold minus answer, complexity", "gold_minus_answer"),
  ),
  LEARNABILITY: (
    Chart(
      "Pass rate of proposals",
      r"learnability/[^/]+/(.+)/solve_rate",
      family="learnability",
    ),
    Chart("Ended by a limit", r"learnability/[^/]+/(.+)/undecided_fraction"),
    Chart("Never solved", r"learnability/[^/]+/(.+)/never_solved_fraction"),
    Chart("Learnability", r"learnability/[^/]+/(.+)/mean"),
  ),
  "Proposals and buffers": (
    Chart(
      "Fraction of valid proposals",
      r"proposals/[^/]+/(.+)/valid_fraction",
      family="proposals",
    ),
    Chart("Rejected", r"proposals/[^/]+/(.+)/rejected_(.+)", missing=0.0),
    Chart("Duplicates", r"proposals/[^/]+/(.+)/duplicate_fraction"),
    Chart("Tasks in the buffer", r"buffer/[^/]+/(.+)/size", family="buffer"),
    Chart("Added in the last 50 steps", r"buffer/[^/]+/(.+)/fresh_fraction"),
  ),
  "Conversations with code": (
    Chart("Scripts per conversation", r"calls/[^/]+/(.+)/mean", family="calls"),
    Chart("Conversations without a script", r"calls/[^/]+/none_fraction"),
    Chart(
      "Conversations that check an answer with a script",
      r"self_check/[^/]+/(.+)/mean",
      family="self_check",
    ),
    Chart(
      "Assistant turns per conversation",
      r"num_turns/[^/]+/(.+)/mean",
      family="num_turns",
    ),
    Chart(
      "Slots and overlap",
      "(?:time/)?interpreter[/_](slots_decoding|slots_waiting|awaiting|overlap_fraction)",
      family="interpreter",
    ),
    Chart("Scripts run", "interpreter/(calls|ok|error|timeout)"),
    Chart("Stage", "stage/[^/]+/number", family="stage"),
    Chart("Questions per group of the stage", "stage/[^/]+/(group.+)"),
  ),
  "Executor": (
    Chart(
      "Verdicts",
      "executor/(ok|error|timeout|blocked|nondeterministic)",
      family="executor",
    ),
    Chart("Programs", "executor/programs"),
  ),
  TIME: (
    Chart("Waiting times", r"time/(.*wait.*)", family="time"),
    Chart(
      "Fraction of a step in which the devices are idle, by phase",
      "device/idle_fraction/(.+)",
      family="device",
    ),
    Chart(
      "Fraction of the devices' rates: matrix units, memory",
      "device/(update/mfu|rollout/bandwidth_fraction)",
    ),
    Chart("Fraction of live slots", "device/rollout/live_slots_fraction"),
    Chart("Tokens per second and device", "device/(.+)/tokens_per_s"),
  ),
  "Learner": (
    Chart("Entropy", "learner/entropy", family="learner"),
    Chart("Gradient norm", "learner/grad_norm"),
    Chart("Fraction of clipped ratios", "learner/(.*clip.*)"),
    Chart("Loss", "learner/(.*loss.*)"),
    Chart(
      "Logprob gap between sampler and learner",
      "rollout/(logprob_gap.*)",
      family="rollout",
    ),
    Chart(
      "Corrected samples: truncated, effective fraction",
      "learner/correction/(truncated_fraction|effective_fraction)",
    ),
    Chart("Critic", "critic/(.+)", family="critic", panels=True),
  ),
  "Styles": (
    Chart(
      "Fraction of each style",
      "style/(.+)_fraction",
      family="style",
      missing=0.0,
    ),
    Chart("Reward within each style", "style/(.+)_reward"),
  ),
  "Safety": (Chart("Flagged", "safety/(.+)", family="safety"),),
}
