"""How fast a run is: utilization of its chips, and where they idle.

Everything is counted on the host, from lengths it knows anyway. Times are taken
when programs are dispatched and when they are seen to be done; nothing waits
for a measurement. docs/guide/speed.md explains the metrics.
"""

from collections.abc import Sequence

import jax
from jax.sharding import Mesh

from azr_jax import types
from azr_jax.models import operations
from azr_jax.models.config import ModelConfig
from azr_jax.models.operations import SamplingDtypes
from azr_jax.parallel import chips
from azr_jax.rollout.meter import Interval, Meter
from azr_jax.rollout.sampler import Sampler

# The phases of a step in which a device can idle.
PHASES = ("rollout", "grading", "update", "other")
_FOREVER = float("inf")


class Speed:
  """Measures the steps of a run, one after the other.

  A step lasts from the end of the previous update (or the start of the loop) to
  the end of its own update. So evaluations, checkpoints and the copy of the
  weights for sampling count as phase `other` of the next step.
  """

  def __init__(
    self,
    config: ModelConfig,
    mesh: Mesh,
    sampler: Sampler,
    *,
    dtypes: SamplingDtypes,
    has_drafts: bool,
    passes: int,
    chip: chips.Chip | None = None,
    frozen: bool = False,
  ):
    """Starts the clock of the first step.

    Args:
      config: the decoder's shape.
      mesh: the devices.
      sampler: the sampler, whose meter is read.
      dtypes: the dtypes that decoding reads.
      has_drafts: whether decoding is speculative.
      passes: how often an update trains on each token, over epochs and
        networks: a critic is a second network of the same shape.
      chip: the peak rates of a device. None looks up the mesh's devices, which
        may be unknown.
      frozen: whether only adapters are trained.
    """
    self._chip = chip or chip_of(mesh)
    self._config, self._dtypes = config, dtypes
    self._has_drafts, self._passes = has_drafts, passes
    self._frozen = frozen
    self._devices = mesh.size
    self._num_replicas = sampler.num_replicas
    self._meter = sampler.meter
    self._meter.take()  # Discard the work of warming up.
    self._done_at = self.now()

  def now(self) -> float:
    """Returns the time in seconds, by the clock of the sampler's meter."""
    return self._meter.now()

  def begin(self) -> "StepTimes":
    """Starts the rollouts of a step.

    Earlier sampling, for an evaluation, kept the devices busy but does not
    count towards the step's rates.
    """
    return StepTimes(self, self.now(), self._meter.take().busy)

  def take(self) -> Meter:
    """Returns the sampling counts since the last call."""
    return self._meter.take()

  def metrics(self, step: "StepTimes", done_at: float) -> dict[str, float]:
    """Returns the metrics of a step. Call once, after its update is done.

    Args:
      step: a step whose rollouts are collected and whose update is dispatched.
      done_at: the time when the update was done.
    """
    began, self._done_at = self._done_at, done_at
    update_s = done_at - step.sent_at
    metrics = _idle_fractions(step, began, done_at)
    metrics |= update_metrics(
      self._config,
      step.lengths,
      self._passes,
      update_s,
      self._devices,
      self._chip,
      self._frozen,
    )
    counts = step.sampled.counts
    metrics |= _rate("rollout", counts.tokens, step.rollout_s, self._devices)
    if counts.slot_steps:
      live = counts.live_slot_steps / counts.slot_steps
      metrics["device/rollout/live_slots_fraction"] = live
    if self._has_drafts and counts.live_slot_steps:
      accepted = counts.decoded / counts.live_slot_steps
      metrics["device/rollout/acceptance_length"] = accepted
    if counts.prefilled + counts.reused:
      known = counts.reused / (counts.prefilled + counts.reused)
      metrics["device/rollout/prefix_cached_fraction"] = known
    if self._chip is None:
      return metrics
    if counts.alone_s > 0:
      read = operations.decode_bytes(
        self._config,
        self._dtypes,
        counts.alone_steps * self._num_replicas,
        counts.alone_entries,
      )
      rate = self._devices * self._chip.bandwidth
      fraction = read / counts.alone_s / rate
      metrics["device/rollout/bandwidth_fraction"] = fraction
    return metrics


class StepTimes:
  """The times of one step. Call `collected`, `send`, then `metrics`."""

  def __init__(self, speed: Speed, start: float, busy: Sequence[Interval] = ()):
    self._speed = speed
    self._busy_before = busy
    self.start = start
    self.collected_at = self.sent_at = start
    self.sampled = Meter()
    self.lengths: list[int] = []
    self._trace = jax.profiler.TraceAnnotation("collect")
    self._trace.__enter__()

  def collected(self, trajectories: Sequence[types.Trajectory]) -> None:
    """Records that the step's trajectories have been sampled and graded."""
    self._trace.__exit__(None, None, None)
    self.collected_at = self._speed.now()
    self.sampled = self._speed.take()
    # A sequence's last token is only a target, never an input.
    self.lengths = [
      len(t.prompt.token_ids) + len(t.completion.token_ids) - 1
      for t in trajectories
      if t.in_loss
    ]

  def send(self) -> None:
    """Records that the update is about to be dispatched."""
    self.sent_at = self._speed.now()

  @property
  def busy(self) -> list[Interval]:
    """When sampling programs ran on the device, including before the step."""
    return [*self._busy_before, *self.sampled.busy]

  @property
  def rollout(self) -> list[Interval]:
    """When the step's completions were sampled."""
    return overlap(self.sampled.spans, [(self.start, self.collected_at)])

  @property
  def rollout_s(self) -> float:
    """Seconds of sampling, including gaps between completions."""
    return total(self.rollout)

  def metrics(self, done_at: float) -> dict[str, float]:
    """Returns times and speeds of the step. Call once, in step order.

    Args:
      done_at: the time when the update was done.
    """
    return {
      "time/sample": self.rollout_s,
      "time/collect": self.collected_at - self.start,
      "time/update": done_at - self.collected_at,
      "time/step": done_at - self.start,
      **self._speed.metrics(self, done_at),
    }


def chip_of(mesh: Mesh) -> chips.Chip | None:
  """Returns the peak rates of a mesh's devices, or None if unknown."""
  return chips.BY_KIND.get(mesh.devices.flat[0].device_kind)


def update_metrics(
  config: ModelConfig,
  lengths: Sequence[int],
  passes: int,
  seconds: float,
  devices: int,
  chip: chips.Chip | None,
  frozen: bool = False,
) -> dict[str, float]:
  """Returns the tokens per second and the utilization of an update.

  Args:
    config: the model's config.
    lengths: the tokens of each trained sequence.
    passes: passes over each sequence: epochs times networks.
    seconds: the time from dispatching the update to its end.
    devices: the number of devices.
    chip: the peak rates of each device; None if unknown.
    frozen: whether only adapters are trained.
  """
  metrics = _rate("update", sum(lengths) * passes, seconds, devices)
  if chip is not None and seconds > 0:
    flops = operations.training_flops(config, lengths, frozen) * passes
    metrics["device/update/mfu"] = flops / seconds / (devices * chip.flops)
  return metrics


def _rate(
  phase: str, tokens: float, seconds: float, devices: int
) -> dict[str, float]:
  """Returns the tokens per second and device of a phase, if it took time."""
  if seconds <= 0:
    return {}
  return {f"device/{phase}/tokens_per_s": tokens / seconds / devices}


def _idle_fractions(
  step: StepTimes, began: float, done_at: float
) -> dict[str, float]:
  """Returns the idle seconds of each phase, as a fraction of the step."""
  whole = done_at - began
  if whole <= 0:
    return {}
  collecting = [(max(began, step.start), step.collected_at)]
  phases = {
    "rollout": overlap(step.rollout, [(began, done_at)]),
    "grading": overlap(collecting, gaps(step.rollout)),
    "update": [(step.collected_at, done_at)],
    "other": [(began, max(began, step.start))],
  }
  idle = gaps([*step.busy, (step.sent_at, done_at)])
  fractions = {
    name: total(overlap(phases[name], idle)) / whole for name in PHASES
  }
  fractions["all"] = sum(fractions.values())
  return {f"device/idle_fraction/{name}": v for name, v in fractions.items()}


def total(intervals: Sequence[Interval]) -> float:
  """Returns the seconds that the union of the intervals covers."""
  return sum(end - start for start, end in union(intervals))


def union(intervals: Sequence[Interval]) -> list[Interval]:
  """Merges intervals into disjoint ones, in ascending order."""
  joined: list[Interval] = []
  for start, end in sorted(intervals):
    if joined and start <= joined[-1][1]:
      joined[-1] = joined[-1][0], max(end, joined[-1][1])
    else:
      joined.append((start, end))
  return joined


def overlap(
  some: Sequence[Interval], others: Sequence[Interval]
) -> list[Interval]:
  """Returns the intersection of two sets of intervals."""
  both = [
    (max(a[0], b[0]), min(a[1], b[1]))
    for a in union(some)
    for b in union(others)
  ]
  return [(start, end) for start, end in both if start < end]


def gaps(intervals: Sequence[Interval]) -> list[Interval]:
  """Returns the complement of the intervals."""
  joined = union(intervals)
  starts = [-_FOREVER, *(end for _, end in joined)]
  ends = [*(start for start, _ in joined), _FOREVER]
  return list(zip(starts, ends, strict=True))
