"""Running benchmarks: order, resuming, rejected records, scores."""

import dataclasses
import json
import types as plain_types
from concurrent.futures import Future
from typing import Any, cast

import letters
import numpy as np
import pytest
import scripted
from typed import present

from azr_jax import types
from azr_jax.evals import items as items_lib
from azr_jax.evals import record_files, runner, styles
from azr_jax.evals.benchmark import Benchmark, Item, ItemOutcome
from azr_jax.evals.items import ItemOptions
from azr_jax.executor import Executor, futures
from azr_jax.grading.outcome import Outcome
from azr_jax.parallel.hosts import Hosts
from azr_jax.rollout.policy import Policy
from azr_jax.tasks import records

ITEMS = [
  Item(f"q{i}", f"question {i}", {"answer": i}, "even" if i % 2 == 0 else "odd")
  for i in range(8)
]
SETTINGS = ItemOptions(data="", limit=0, prompt_format="plain", samples=3)


class ScriptedPolicy(scripted.Policy):
  """Responds "right" if prompt number + sample index is a multiple of 3."""

  sampler = plain_types.SimpleNamespace(prompt_buckets=(8,))
  tokenizer: Any = letters.Letters()

  def __init__(self, breaks_after=None):
    self.asked = []
    self.left = breaks_after

  def prompt(self, text, task=None):
    return types.Prompt(text, (1,), task)

  def fits(self, prompt):
    return len(prompt.text) < 200

  @scripted.samples
  def sample(self, prompts, n=1, prompt_numbers=None):
    self.asked += [prompt.task.id for prompt in prompts]
    seeds = present(prompt_numbers)
    # Responses finish out of order, so an interruption leaves gaps.
    for index in sorted(range(len(prompts)), key=lambda i: i * 5 % 8):
      for sample in range(n):
        if self.left is not None:
          self.left -= 1
          if self.left < 0:
            raise KeyboardInterrupt
        ids = np.arange(seeds[index] + 1, dtype=np.int32)
        text = "right" if (seeds[index] + sample) % 3 == 0 else "wrong"
        yield (
          index,
          sample,
          types.Completion(
            ids, np.zeros(len(ids), np.float32), ids >= 0, "stop", text
          ),
        )


def benchmark(**changes):
  settings: dict[str, Any] = dict(
    name="toy",
    source="",
    read=lambda data: ITEMS,
    opens_data=True,
    answer_format="words",
    grade=lambda executor, item, text: futures.done(
      ItemOutcome(text == "right")
    ),
    summarize=lambda items, correct, _: {"responses": float(correct.size)},
  )
  return Benchmark(**(settings | changes))


@pytest.fixture(name="executor", scope="module")
def make_executor():
  with Executor(workers=1, timeout_s=2.0, memory_mb=256) as executor:
    yield executor


def run(
  policy,
  executor,
  path,
  settings=SETTINGS,
  said=None,
  styles_of=None,
  **changes,
):
  """Runs the benchmark; adds the status lines to `said`."""
  return runner.run(
    benchmark(**changes),
    policy,
    executor,
    Hosts(60.0),
    settings,
    path,
    say=(said if said is not None else []).append,
    styles_of=styles_of,
  )


def test_scores_of_a_whole_run(executor, tmp_path):
  scores = run(ScriptedPolicy(), executor, tmp_path / "toy.jsonl")
  assert scores["toy/pass@1/unbiased"] == pytest.approx(1 / 3)
  assert scores["toy/pass@1/first"] == pytest.approx(3 / 8)
  assert scores["toy/pass@1/even"] == pytest.approx(1 / 3)
  assert scores["toy/responses"] == 24
  assert scores["toy/tokens"] == 4.5
  lines = (tmp_path / "toy.jsonl").read_text().splitlines()
  assert {json.loads(line)["id"] for line in lines} == {i.id for i in ITEMS}
  assert scores == run(ScriptedPolicy(), executor, None)


def test_responses_are_graded_behind_a_prefill(executor, tmp_path):
  path = tmp_path / "toy.jsonl"
  settings = dataclasses.replace(SETTINGS, prefill=lambda item: "It is ")
  scores = run(
    ScriptedPolicy(),
    executor,
    path,
    settings,
    grade=lambda executor, item, text: futures.done(
      ItemOutcome(text == "It is right")
    ),
  )
  assert scores["toy/pass@1/unbiased"] == pytest.approx(1 / 3)
  assert scores["toy/tokens"] == 4.5
  [first, *_] = map(json.loads, path.read_text().splitlines())
  assert {*first["responses"]} <= {"It is right", "It is wrong"}
  assert first["prefill"] == "It is "


def test_records_have_the_style_of_each_answer(executor, tmp_path):
  path = tmp_path / "toy.jsonl"
  with styles.open_rule(styles.FIRST_WORD) as styles_of:
    run(ScriptedPolicy(), executor, path, styles_of=styles_of)
  records = [json.loads(line) for line in path.read_text().splitlines()]
  assert all(one["styles"] == one["responses"] for one in records)


@pytest.mark.parametrize("breaks_after", [0, 4, 7, 23])
def test_a_resumed_run_scores_as_an_uninterrupted_one(
  executor, tmp_path, breaks_after
):
  path = tmp_path / "toy.jsonl"
  with pytest.raises(KeyboardInterrupt):
    run(ScriptedPolicy(breaks_after), executor, path)
  with path.open("a") as file:
    file.write('{"id": "q0", "corr')  # a line cut off by a kill
  policy = ScriptedPolicy()
  again = run(policy, executor, path)
  assert again == run(ScriptedPolicy(), executor, tmp_path / "whole.jsonl")
  assert len(policy.asked) == 8 - breaks_after // 3
  last = ScriptedPolicy()
  assert run(last, executor, path) == again
  assert last.asked == []


@pytest.mark.parametrize("breaks_after", [0, 4, 23])
def test_a_run_in_an_object_store_is_resumed(
  executor, tmp_path, strict_store, breaks_after, monkeypatch
):
  path = strict_store / "toy.jsonl"
  read = records.read

  def read_here(spec):
    assert not spec.startswith(str(strict_store))  # reads only local files
    return read(spec)

  monkeypatch.setattr(records, "read", read_here)
  with pytest.raises(KeyboardInterrupt):
    run(ScriptedPolicy(breaks_after), executor, path)
  policy = ScriptedPolicy()
  again = run(policy, executor, path)
  assert again == run(ScriptedPolicy(), executor, tmp_path / "whole.jsonl")
  assert len(policy.asked) == 8 - breaks_after // 3
  found = {record["id"]: record for record in record_files.read(path)}
  want = record_files.read(tmp_path / "whole.jsonl")
  assert found == {record["id"]: record for record in want}


def test_a_record_without_its_line_end_is_sampled_again(executor, tmp_path):
  path = tmp_path / "toy.jsonl"
  scores = run(ScriptedPolicy(), executor, path)
  path.write_bytes(path.read_bytes().rstrip(b"\n"))
  policy = ScriptedPolicy()
  assert run(policy, executor, path) == scores
  assert len(policy.asked) == 1
  assert len(path.read_text().splitlines()) == len(ITEMS)


def test_records_without_a_key_are_refused(executor, tmp_path):
  path = tmp_path / "toy.jsonl"
  run(ScriptedPolicy(), executor, path)
  text = path.read_text().replace('"responses":', '"replies":')
  path.write_text(text)
  with pytest.raises(ValueError, match="a record lacks 'responses'"):
    run(ScriptedPolicy(), executor, path)


def test_timeouts_are_told_apart_from_wrong_responses(executor, tmp_path):

  def grade(executor, item, text):
    right = text == "right"
    return futures.done(
      ItemOutcome.of(Outcome.CORRECT if right else Outcome.TIMEOUT)
    )

  path = tmp_path / "toy.jsonl"
  scores = run(ScriptedPolicy(), executor, path, grade=grade)
  records = [json.loads(line) for line in path.read_text().splitlines()]
  wrong = [not right for record in records for right in record["correct"]]
  assert scores["toy/timeout_fraction"] == sum(wrong) / len(wrong) > 0
  assert [t for r in records for t in r["timed_out"]] == wrong


def test_responses_that_a_limit_made_wrong_are_counted(executor, tmp_path):

  def grade(executor, item, text):
    right = text == "right"
    limit = "" if right or item.id != "q1" else "MemoryError"
    return futures.done(ItemOutcome.of(Outcome.of(right), "a remark", limit))

  path, said = tmp_path / "toy.jsonl", []
  scores = run(ScriptedPolicy(), executor, path, said=said, grade=grade)
  records = [json.loads(line) for line in path.read_text().splitlines()]
  limited = [
    not right and record["id"] == "q1"
    for record in records
    for right in record["correct"]
  ]
  assert scores["toy/limited_fraction"] == sum(limited) / len(limited) > 0
  [line] = said
  assert f"made {sum(limited)} responses incorrect ({sum(limited)} Mem" in line


def test_a_benchmark_without_data_is_named(executor):
  with pytest.raises(ValueError, match="toy has no public source"):
    run(ScriptedPolicy(), executor, None, opens_data=False)


def test_records_of_other_items_or_samples_are_refused(executor, tmp_path):
  path = tmp_path / "toy.jsonl"
  run(ScriptedPolicy(), executor, path)
  fewer = ItemOptions("", 0, "plain", samples=2)
  with pytest.raises(ValueError, match="another --workdir"):
    run(ScriptedPolicy(), executor, path, fewer)
  other = [Item("q0", "another question", {})]
  with pytest.raises(ValueError, match="another --workdir"):
    run(ScriptedPolicy(), executor, path, read=lambda data: other)


def test_limits_count_items_or_items_of_each_kind(executor):
  settings = ItemOptions("", 3, "plain", 1)
  for limit_per_subset, want in (
    (False, ["q0", "q1", "q2"]),
    (True, ["q0", "q2", "q4"]),
  ):
    policy = ScriptedPolicy()
    run(policy, executor, None, settings, limit_per_subset=limit_per_subset)
    assert policy.asked[:3] == want
    assert len(policy.asked) == (6 if limit_per_subset else 3)
  policy = ScriptedPolicy()
  run(policy, executor, None, default_limit=2)
  assert len(policy.asked) == 2


def test_a_prompt_that_is_too_long_counts_as_incorrect(executor, tmp_path):
  items, said = [Item("long", "x" * 300, {}), *ITEMS[:2]], []
  policy, path = ScriptedPolicy(), tmp_path / "toy.jsonl"
  scores = run(policy, executor, path, said=said, read=lambda data: items)
  assert policy.asked == ["q0", "q1"]
  assert (scores["toy/items"], scores["toy/too_long"]) == (3.0, 1.0)
  # One of three responses is correct for each sampled item.
  assert scores["toy/pass@1/unbiased"] == pytest.approx(2 / 9)
  assert len(said) == 1 and "1 prompts exceed" in said[0]
  # Without a record, a later run with larger buckets can sample the item.
  assert "long" not in path.read_text()
  with pytest.raises(ValueError, match="no prompt of toy fits config.rollout"):
    run(policy, executor, None, read=lambda data: items[:1])


def test_a_benchmark_with_fixed_items_reads_no_data():
  def refuse(data):
    raise OSError("the source is away")

  away = Benchmark(
    "away", "hf:nobody/nothing", refuse, "words", lambda *_: Future()
  )
  held = away.with_items(ITEMS)
  settings = ItemOptions("", 3, "plain", 1)
  assert items_lib.items_of(held, settings) == ITEMS[:3]


class Conversing(ScriptedPolicy):
  """Calls a tool once per even item."""

  tokenizer = plain_types.SimpleNamespace(
    decode=lambda ids: "".join("abcde"[i] for i in ids)
  )

  @scripted.samples
  def sample(self, prompts, n=1, prompt_numbers=None):
    for index, prompt in enumerate(prompts):
      ids = np.arange(5, dtype=np.int32)
      loss_mask = ids != (2 if prompt.task.subset == "even" else 9)
      for sample in range(n):
        yield (
          index,
          sample,
          types.Completion(
            ids, np.zeros(len(ids), np.float32), loss_mask, "stop", "right"
          ),
        )


def test_records_of_conversations_contain_the_tool_output(executor, tmp_path):
  path = tmp_path / "records.jsonl"
  scores = runner.run(
    benchmark(),
    cast(Policy, Conversing()),
    executor,
    Hosts(10.0),
    SETTINGS,
    path,
  )
  assert scores["toy/num_tool_calls"] == 0.5
  records = [json.loads(line) for line in path.read_text().splitlines()]
  for record in records:
    even = record["subset"] == "even"
    assert record["num_tool_calls"] == [int(even)] * 3
    assert record.get("conversations") == (["abcde"] * 3 if even else None)
