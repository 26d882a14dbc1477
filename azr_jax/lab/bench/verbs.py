"""Compares the verbs with the update of a training run, on the same data."""

import time
from typing import Any

import jax
import numpy as np

from azr_jax.lab.bench import comparison, updating
from azr_jax.lab.bench.updating import UpdateRunner
from azr_jax.lab.bench.workload import UpdateWorkload
from azr_jax.learner import packing
from azr_jax.learner.objective import Fixed
from azr_jax.models import transformer
from azr_jax.types import Params, Rules
from azr_jax.verbs import programs, rows
from azr_jax.verbs.data import DataLimits, Datum
from azr_jax.verbs.programs import Adam
from azr_jax.verbs.trainable import Trainable


class VerbsRunner:
  """A model that `forward_backward` and `optim_step` train on a workload."""

  def __init__(
    self,
    params: Params,
    model: transformer.Transformer,
    mesh: jax.sharding.Mesh,
    rules: Rules,
    workload: UpdateWorkload,
    *,
    micro_rows: int,
    chunk_tokens: int,
    sequences_per_row: int,
  ):
    """Builds the verbs, which compile when they first run.

    Args:
      params: the decoder's parameters, which are donated.
      model: the decoder, with its remat policy.
      mesh: the mesh to train on.
      rules: logical axis to mesh axis.
      workload: the sequences to train on.
      micro_rows: maximum rows that are computed together.
      chunk_tokens: tokens whose logits are computed at once.
      sequences_per_row: maximum sequences per row.
    """
    functions = programs.make(model, mesh, rules, chunk_tokens=chunk_tokens)
    lengths, config = workload.lengths(), model.config
    self._trainable = Trainable(
      functions,
      rows.shapes(
        min(micro_rows, len(lengths)),
        workload.length,
        1,
        sequences_per_row,
        config.hidden_size,
      ),
      DataLimits(workload.length, config.vocab_size),
      Fixed(),
      functions.start(params),
    )
    examples = updating.examples(lengths, config.vocab_size)
    self._data = list(map(datum, examples))

  def run(self) -> float:
    """Runs the verbs once; returns seconds."""
    start = time.perf_counter()
    self._trainable.forward_backward(self._data, "ppo")
    self._trainable.optim_step(Adam())
    jax.block_until_ready(self._trainable.state)
    return time.perf_counter() - start


def datum(example: packing.TrainingExample) -> Datum:
  """Returns an example of the update as data of the verbs."""
  ids = example.token_ids
  inputs = {
    "logprobs": example.logprobs[1:],
    "advantages": np.full(len(ids) - 1, example.advantage, np.float32),
  }
  return Datum(ids[:-1], ids[1:], inputs)


def report(
  verbs: VerbsRunner,
  update: UpdateRunner,
  workload: UpdateWorkload,
  repeats: int,
) -> dict[str, Any]:
  """Alternates runs of both, and compares them.

  Args:
    verbs: runs the verbs.
    update: runs the update.
    workload: the sequences that both train on.
    repeats: runs of each.
  """
  verbs_s, update_s = comparison.alternate(verbs.run, update.run, repeats)
  return {
    "tokens": sum(workload.lengths()),
    "verbs_s": float(np.median(verbs_s)),
    "update_s": float(np.median(update_s)),
    "ratio": comparison.median_ratio(verbs_s, update_s),
  }
