"""The texts of a step that a run keeps."""

import json

import numpy as np
import pytest

from azr_jax import types
from azr_jax.run import metrics


def trajectory(group, number):
  nothing = np.zeros(0, np.int32)
  completion = types.Completion(
    nothing, nothing * 0.0, nothing > 0, "stop", f"{group} {number}"
  )
  prompt = types.Prompt("?", (1,), None)
  return types.Trajectory(prompt, completion, 1.0, group, {})


@pytest.mark.parametrize("count", [0, 1, 5, 12, 100])
def test_every_group_has_its_part_of_the_kept_texts(tmp_path, count):
  sizes = {"a": 9, "b": 1, "c": 7, "d": 2, "e": 9}
  some = [trajectory(g, n) for g, size in sizes.items() for n in range(size)]
  metrics.write_samples(tmp_path, 3, some, count)
  path = tmp_path / metrics.SAMPLES / "000003.jsonl"
  if not count:
    assert not path.exists()
    return
  kept = [json.loads(line)["group"] for line in path.read_text().splitlines()]
  assert len(kept) == min(count, len(some))
  assert len(set(kept)) == min(count, len(sizes))
  if count == 12:
    assert {g: kept.count(g) for g in sizes} == dict(a=3, b=1, c=3, d=2, e=3)
