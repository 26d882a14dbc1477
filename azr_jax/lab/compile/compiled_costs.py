"""The costs of a step's device calls, taken from compiled programs.

They add up the compiler's cycles at the chip's clock, kernels and exposed
collectives at data-sheet rates, an assumed latency per collective, and the
host's time as measured without a device. Real devices are slower.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.lab.compile import (
  cost,
  forecast,
  program_report,
  sampler_forecast,
  sampling_programs,
)
from azr_jax.lab.compile import draws as draws_lib
from azr_jax.lab.compile.compiled import Compiled
from azr_jax.lab.compile.cost import Cost
from azr_jax.lab.compile.lengths import Lengths
from azr_jax.lab.compile.roofline import Load
from azr_jax.lab.compile.roofline_floors import Shapes
from azr_jax.lab.compile.sampler_forecast import (
  DecodeCost,
  HostCosts,
  Rules,
  SamplerCosts,
)
from azr_jax.parallel.chips import Chip
from azr_jax.rollout import settings as rollout_settings
from azr_jax.rollout.build import shapes_of
from azr_jax.trainer.settings import TrainSettings

# Assumed, not measured: seconds until the first byte of a collective arrives.
COLLECTIVE_LATENCY_S = 3e-6
# Assumed, not measured: seconds to send a decode call and to fetch its tokens.
HOST_CALL_S = 1e-3
# Seconds of a verdict exchange. Two processes of one machine take 3 to 14 ms
# for 1 to 200 KB.
EXCHANGE_S = 10e-3
# Seconds of published runs on TPUs divided by a forecast (docs/results/tpu.md).
DECODE_FACTOR, UPDATE_FACTOR = 1.5, 1.1


def seconds(total: Cost, chip: Chip) -> float:
  """Returns the seconds of a cost, without loops of unknown length.

  Args:
    total: the cost.
    chip: a chip whose clock is known.
  """
  outside_loops = Cost()
  outside_loops.add(total)
  outside_loops.loops = []
  report = program_report.time_report(outside_loops, chip, {})
  return report["total_seconds"] + COLLECTIVE_LATENCY_S * sum(
    outside_loops.collectives.values()
  )


def sampler_costs(
  programs: Mapping[str, Compiled],
  chip: Chip,
  c: TrainSettings,
  slot_counts: tuple[int, ...],
  hosts: int = 1,
) -> SamplerCosts:
  """Returns the costs of sampling.

  Args:
    programs: compiled programs by name.
    chip: the device type.
    c: a training configuration.
    slot_counts: slot counts that decode is compiled for.
    hosts: number of processes, which exchange verdicts.
  """
  prefill_s = {}
  for chunk in c.rollout.prefill_chunks:
    total = programs[sampling_programs.prefill_name(c.rollout, chunk)].cost
    page_s = seconds(total.iteration(cost.PAGE), chip)
    prefill_s[chunk] = (seconds(total, chip), page_s)
  names = {
    slots: sampling_programs.decode_name(slot_counts, slots)
    for slots in slot_counts
  }
  decode = {
    slots: decode_cost(programs[name], chip) for slots, name in names.items()
  }
  host = HostCosts(
    HOST_CALL_S,
    sampler_forecast.HOST_SLOT_S,
    EXCHANGE_S if hosts > 1 else 0.0,
  )
  return SamplerCosts(prefill_s, decode, host=host)


def decode_cost(program: Compiled, chip: Chip) -> DecodeCost:
  """Returns the cost of a decode call, of a token, and of a cache page."""
  token = program.cost.iteration(cost.TOKEN)
  return DecodeCost(
    seconds(program.cost, chip),
    seconds(token, chip),
    seconds(token.iteration(cost.PAGE), chip),
  )


def learner_costs(
  programs: Mapping[str, Compiled], chip: Chip
) -> forecast.LearnerCosts:
  """Returns the costs of an update and of handing its parameters to sampling.

  They include a critic's costs if the run has one.

  Args:
    programs: compiled programs by name.
    chip: the device type.
  """

  def costs(names: Sequence[str]) -> tuple[float, float]:
    call_s = micro_batch_s = 0.0
    for name in names:
      if name in programs:
        total = programs[name].cost
        call_s += seconds(total, chip)
        micro_batch_s += seconds(total.iteration(cost.MICRO_BATCH), chip)
    return call_s, micro_batch_s

  call_s, micro_batch_s = costs(("update", "critic"))
  score_call_s, score_micro_batch_s = costs(("prepare", "estimate"))
  critic_step_s = 0.0
  if "critic" in programs:
    step = programs["critic"].cost.iteration(cost.OPTIMIZER_STEP)
    critic_step_s = seconds(step, chip)
  return forecast.LearnerCosts(
    call_s,
    micro_batch_s,
    params_s=seconds(programs["weights"].cost, chip),
    score_call_s=score_call_s,
    score_micro_batch_s=score_micro_batch_s,
    critic_step_s=critic_step_s,
  )


def forecast_step(
  programs: Mapping[str, Compiled],
  chip: Chip,
  c: TrainSettings,
  shapes: Shapes,
  slot_counts: tuple[int, ...],
  load: Load,
  lengths: Lengths,
  hosts: int = 1,
  draws: int = draws_lib.DRAWS,
) -> dict[str, Any]:
  """Returns the forecast of a step for a distribution of lengths.

  Args:
    programs: programs by name, all of which compiled.
    chip: a chip whose clock is known.
    c: a training configuration.
    shapes: the sizes of a call.
    slot_counts: slot counts that decode is compiled for, descending.
    load: the step's requests.
    lengths: the distribution of completion lengths.
    hosts: number of processes, which exchange verdicts.
    draws: number of steps to average over.
  """
  rules = Rules(
    shapes_of(c.rollout, shapes.chips // shapes.tensor, slot_counts),
    "tpu",
    c.rollout.attention != rollout_settings.LOOP,
  )
  learner_rules = forecast.LearnerRules(
    c.learner.row_length,
    shapes.rows,
    c.learner.epochs,
    c.learner.max_sequences_per_row,
    c.critic.num_minibatches,
    c.learner.minibatches,
  )
  return draws_lib.forecast_steps(
    load,
    lengths,
    rules,
    sampler_costs(programs, chip, c, slot_counts, hosts),
    learner_rules,
    learner_costs(programs, chip),
    draws,
  )
