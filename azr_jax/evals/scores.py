"""The scores of a benchmark, from the records of its items."""

from collections.abc import Sequence

import numpy as np

from azr_jax.evals import pass_at_k
from azr_jax.evals.benchmark import Benchmark, Item
from azr_jax.evals.record_files import TOO_LONG, Record

KS = (1, 4, 8, 16, 32, 64)


def of_records(
  benchmark: Benchmark, items: Sequence[Item], records: Sequence[Record]
) -> dict[str, float]:
  """Returns the scores of items, given their records in the same order."""
  correct = np.array([record["correct"] for record in records], bool)
  metrics = pass_at_k.scores(correct, KS, benchmark.name)
  for subset in dict.fromkeys(item.subset for item in items if item.subset):
    is_in_subset = [item.subset == subset for item in items]
    metrics[f"{benchmark.name}/pass@1/{subset}"] = float(
      correct[is_in_subset].mean()
    )
  finish = [reason for record in records for reason in record["finish"]]
  tokens = [count for record in records for count in record["tokens"]]
  timed_out = [t for record in records for t in record["timed_out"]]
  metrics[f"{benchmark.name}/timeout_fraction"] = float(np.mean(timed_out))
  is_limited = [name != "" for record in records for name in record["limits"]]
  metrics[f"{benchmark.name}/limited_fraction"] = float(np.mean(is_limited))
  metrics[f"{benchmark.name}/ended_fraction"] = float(
    np.mean([reason == "stop" for reason in finish])
  )
  metrics[f"{benchmark.name}/tokens"] = float(np.mean(tokens))
  metrics[f"{benchmark.name}/items"] = float(len(items))
  metrics[f"{benchmark.name}/too_long"] = float(
    sum(record["details"][0] == TOO_LONG for record in records)
  )
  calls = [count for record in records for count in record["num_tool_calls"]]
  if any(calls):
    metrics[f"{benchmark.name}/num_tool_calls"] = float(np.mean(calls))
  if benchmark.summarize is not None:
    responses = [record["responses"] for record in records]
    extra = benchmark.summarize(items, correct, responses)
    metrics |= {f"{benchmark.name}/{name}": v for name, v in extra.items()}
  return metrics
