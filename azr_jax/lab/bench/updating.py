"""Measures tokens per second, memory and roofline of the update."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from azr_jax.lab.bench import comparison, device
from azr_jax.lab.bench.workload import UpdateWorkload
from azr_jax.learner import learner as learner_lib
from azr_jax.learner import objective, packing, policy_losses, update
from azr_jax.learner.objective import Fixed
from azr_jax.learner.optimizer import make_optimizer
from azr_jax.learner.policy_losses import PolicyLossSettings
from azr_jax.learner.settings import OptimizerSettings
from azr_jax.models import transformer
from azr_jax.models.config import ModelConfig
from azr_jax.models.operations import training_flops
from azr_jax.parallel import compiler
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Params, Rules


class UpdateRunner:
  """A compiled update that can run on a workload repeatedly.

  Attributes:
    rows: rows of the packed workload.
    micro_batches: micro-batches that the compiled update has room for.
    compile_s: seconds of compilation.
    program_bytes: peak memory of the compiled update.
  """

  def __init__(
    self,
    params: Params,
    model: transformer.Transformer,
    mesh: jax.sharding.Mesh,
    rules: Rules,
    workload: UpdateWorkload,
    micro_rows: int,
    chunk_tokens: int,
  ):
    """Packs the workload and compiles the update.

    Args:
      params: the decoder's parameters, which are donated.
      model: the decoder, with its remat policy.
      mesh: the mesh to train on.
      rules: logical axis to mesh axis.
      workload: the sequences to train on.
      micro_rows: maximum rows per micro-batch.
      chunk_tokens: tokens whose logits are computed at once.
    """
    optimizer = make_optimizer(**vars(OptimizerSettings()))
    loss_fn = objective.make_policy_loss(
      model,
      policy_losses.make("clipped", PolicyLossSettings()),
      temperature=1.0,
      chunk_tokens=chunk_tokens,
      mesh=mesh,
    )
    options = compiler.CompilerSettings().options(mesh)
    learner = learner_lib.make(
      model, loss_fn, optimizer, mesh, rules, options=options
    )
    self._state = learner.init(params)
    self._vocab_size = model.config.vocab_size
    self._row_length = workload.length
    # More rows than sequences would only compute padding.
    most_rows = min(micro_rows, len(workload.lengths()))
    self._micro_rows = mesh_lib.padded_rows(most_rows, mesh)
    self.micro_batches = 1
    self.load(workload.lengths())
    self.micro_batches = self._batch.tokens.shape[0]
    start = time.perf_counter()
    self._update = learner.policy_update.lower(
      self._state, self._batch, Fixed()
    ).compile()
    self.compile_s = time.perf_counter() - start
    memory = self._update.memory_analysis()
    assert memory is not None
    self.program_bytes = (
      memory.argument_size_in_bytes
      + memory.output_size_in_bytes
      + memory.temp_size_in_bytes
      - memory.alias_size_in_bytes
    )

  def load(self, lengths: list[int]) -> None:
    """Packs sequences of these lengths for the following calls of `run`.

    Args:
      lengths: sequence lengths, in tokens. Except in the first call, they must
        fit into `micro_batches`.
    """
    batch = packing.pack(
      examples(lengths, self._vocab_size),
      row_length=self._row_length,
      rows_multiple=self._micro_rows * self.micro_batches,
      aggregation="token_mean",
    )
    self.rows = int(np.sum(np.any(batch.segment_ids > 0, axis=-1)))
    self._batch = update.to_micro_batches(batch, self._micro_rows)

  def run(self, micro_batches: int | None = None) -> float:
    """Runs one update; returns seconds.

    Args:
      micro_batches: number of micro-batches that are not empty; None takes all
        that are loaded.
    """
    batch = self._batch
    if micro_batches is not None:
      kept = np.arange(self.micro_batches)[:, None, None] < micro_batches
      batch = jax.tree.map(
        lambda x: np.where(kept, x, 0).astype(x.dtype), batch
      )
    start = time.perf_counter()
    self._state, metrics = self._update(self._state, batch, Fixed())
    jax.block_until_ready((self._state, metrics))
    return time.perf_counter() - start


def examples(
  lengths: Sequence[int], vocab_size: int
) -> list[packing.TrainingExample]:
  """Returns examples of random ids, with one id more than scored tokens."""
  rng = np.random.default_rng(0)
  found = []
  for length in lengths:
    count = length + 1
    ids = rng.integers(1, vocab_size, count, dtype=np.int32)
    zeros = np.zeros(count, np.float32)
    mask = np.ones(count, bool)
    advantage = float(rng.normal())
    found.append(packing.TrainingExample(ids, mask, advantage, zeros))
  return found


def report(
  runner: UpdateRunner,
  config: ModelConfig,
  workload: UpdateWorkload,
  baseline: Callable[[], float] | None,
  repeats: int,
) -> dict[str, Any]:
  """Alternates runs of the update and the baseline, and compares them.

  Args:
    runner: the update.
    config: the decoder's config.
    workload: the sequences that both train on.
    baseline: updates on the same workload once and returns seconds, or None.
    repeats: runs of each.
  """
  lengths = workload.lengths()
  update_s, baseline_s = comparison.alternate(runner.run, baseline, repeats)
  seconds = float(np.median(update_s))
  peak_rates = device.peak_rates()
  min_seconds = training_flops(config, lengths) / peak_rates["flops"]
  return comparison.rates(sum(lengths), update_s, baseline_s) | {
    "rows": runner.rows,
    "step_s": seconds,
    "compile_s": runner.compile_s,
    "peak_rates": peak_rates,
    "flops_roofline_fraction": min_seconds / seconds,
    "program_gib": runner.program_bytes / 2**30,
  }
