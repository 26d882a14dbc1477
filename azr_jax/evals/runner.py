"""Runs a benchmark: samples each item n times, grades, and writes records.

The life of a run:
1. Items that already have a line in the records file are skipped.
2. The other items are sampled as one stream. Grading overlaps with sampling.
3. Once all responses to an item are graded, its record is appended to the file.
4. Scores are computed from the records. An interrupted run scores the same as
   an uninterrupted one, because an item's random numbers depend only on the
   benchmark's name and the item's index.
"""

import collections
import contextlib
import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from jaxtyping import Array, Key

from azr_jax import types
from azr_jax.evals import items as items_lib
from azr_jax.evals import record_files, scores
from azr_jax.evals.benchmark import Benchmark, Item, ItemOutcome
from azr_jax.evals.items import ItemOptions
from azr_jax.evals.record_files import Record
from azr_jax.evals.styles import StyleRule
from azr_jax.executor import Executor
from azr_jax.parallel.hosts import Hosts
from azr_jax.randomness import keys
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.policy import Agent, Policy
from azr_jax.run import console
from azr_jax.run.growing_file import GrowingFile

PROGRESS_LINES = 10


def key_of(benchmark: Benchmark, key: Key[Array, ""]) -> Key[Array, ""]:
  """Returns the random key of a benchmark's answers.

  Items are numbered in each benchmark, so a key that several benchmarks shared
  would give items of the same number the same random numbers.

  Args:
    benchmark: the benchmark, whose name decides.
    key: the key of all benchmarks.
  """
  digest = hashlib.sha256(benchmark.name.encode()).digest()
  number = int.from_bytes(digest[:4], "big")
  return keys.fold(key, Purpose.BENCHMARK, number)


def run(
  benchmark: Benchmark,
  policy: Policy,
  executor: Executor,
  hosts: Hosts,
  options: ItemOptions,
  path: pathlib.Path | None,
  agent: Agent = policy_lib.single_turn,
  say: Callable[[str], None] = console.print_status,
  styles_of: StyleRule | None = None,
) -> dict[str, float]:
  """Samples and grades the items without a record, then scores all items.

  Args:
    policy: the policy that samples the responses.
    executor: the executor of the graders. Every host grades all responses,
      because sampling dominates the run time.
    hosts: the hosts of this run. Either all of them see the records file, or
      none does.
    options: which items to run, and how.
    path: the records file, local or in an object store. Its records are
      reused. None writes no records.
    agent: answers the prompts with the policy, possibly in several turns.
    say: prints a status line.
    styles_of: names the style of each response, for the records. None names
      none.

  Returns:
    Scores, each named `BENCHMARK/...`: pass@k (unbiased and first-k) with
    standard errors, pass@1 by subset, the fraction of responses that ended with
    a stop token (`ended_fraction`), the fraction whose grading timed out
    (`timeout_fraction`), the fraction that are incorrect because of an executor
    limit that the benchmark does not have (`limited_fraction`), mean tokens per
    response, the number of items, the number of items too long to sample (they
    count as incorrect), mean tool calls per response if there are any
    (`num_tool_calls`), and the benchmark's own scores.

  Raises:
    ValueError: the data cannot be read, the records belong to other data, or
      the rule of styles fails.
  """
  if benchmark.timeout_s not in (0.0, executor.timeout_s):
    say(
      f"{benchmark.name}: executor.timeout_s={executor.timeout_s:g} CPU "
      f"seconds per test differs from the benchmark's {benchmark.timeout_s:g}"
    )
  items = items_lib.items_of(benchmark, options, say)
  with contextlib.ExitStack() as stack:
    file, records = None, {}
    if path is not None:
      file = stack.enter_context(GrowingFile(path, hosts.is_primary))
      records = record_files.resume(file.here, path, items, options.samples)
    # Hosts that disagree on the missing items would deadlock in sampling.
    hosts.assert_equal(f"records of {benchmark.name}", sorted(records))
    missing = [i for i, item in enumerate(items) if item.id not in records]
    prompts = {
      i: _prompt(benchmark, items[i], options, policy) for i in missing
    }
    for index in _too_long(benchmark, policy, items, prompts, say):
      item = items[index]
      records[item.id] = record_files.too_long(item, options.samples)
      del prompts[index]
    graded = _sample_and_grade(
      benchmark, policy, executor, items, prompts, options.samples, agent
    )
    if styles_of is not None:
      graded = (
        (item, {**record, "styles": styles_of(record)})
        for item, record in graded
      )
    _collect(graded, benchmark.name, items, records, hosts, file)
  in_order = [records[item.id] for item in items]
  _warn_of_limits(benchmark.name, in_order, say)
  return scores.of_records(benchmark, items, in_order)


def _prompt(
  benchmark: Benchmark, item: Item, options: ItemOptions, policy: Policy
) -> types.Prompt:
  text = items_lib.prompt_text(benchmark, item, options, policy.tokenizer)
  prompt, begun = policy.prompt(text, item), options.prefill(item)
  if not begun:
    return prompt
  ids = items_lib.prompt_ids(text, begun, policy.tokenizer)
  return dataclasses.replace(prompt, token_ids=ids, prefill=begun)


def _warn_of_limits(
  name: str, records: Sequence[Record], say: Callable[[str], None]
) -> None:
  """Prints how many responses an executor limit made incorrect."""
  counts = collections.Counter(
    limit for record in records for limit in record["limits"] if limit
  )
  if counts:
    named = ", ".join(f"{count} {limit}" for limit, count in counts.items())
    say(
      f"{name}: a limit of the executor, not of the benchmark, made "
      f"{counts.total()} responses incorrect ({named})"
    )


def _too_long(
  benchmark: Benchmark,
  policy: Policy,
  items: Sequence[Item],
  prompts: Mapping[int, types.Prompt],
  say: Callable[[str], None],
) -> list[int]:
  """Returns the items whose prompts fit no bucket, after a warning.

  Raises:
    ValueError: no prompt of the benchmark fits.
  """
  too_long = [i for i, prompt in prompts.items() if not policy.fits(prompt)]
  if items and len(too_long) == len(items):
    raise policy_lib.no_prompt_fits(benchmark.name, policy)
  if too_long:
    say(
      f"{benchmark.name}: {len(too_long)} prompts exceed the largest of "
      f"rollout.prompt_buckets={policy.sampler.prompt_buckets} and "
      f"count as incorrect; the first is {items[too_long[0]].id}"
    )
  return too_long


def _collect(
  graded: Iterator[tuple[Item, Record]],
  name: str,
  items: Sequence[Item],
  records: dict[str, Record],
  hosts: Hosts,
  file: GrowingFile | None,
) -> None:
  """Adds graded items to the records and, on the primary host, to the file."""
  progress = console.Progress(len(records) + 1, len(items), unit="item")
  items_per_line = max(1, len(items) // PROGRESS_LINES)
  try:
    for item, record in graded:
      records[item.id] = record
      if file is not None:
        record_files.append(file, record)
      if hosts.is_primary and len(records) % items_per_line == 0:
        progress.show(len(records), name)
  finally:
    progress.close()


def _sample_and_grade(
  benchmark: Benchmark,
  policy: Policy,
  executor: Executor,
  items: Sequence[Item],
  prompts: Mapping[int, types.Prompt],
  samples: int,
  agent: Agent,
) -> Iterator[tuple[Item, Record]]:
  """Yields each item with its record once all its responses are graded.

  Args:
    benchmark: the benchmark, which grades the responses.
    policy: the policy that samples them.
    executor: the executor of the graders.
    items: all items of the benchmark.
    prompts: the prompts to sample, by item index.
    samples: the number of responses per prompt.
    agent: answers the prompts with the policy.
  """
  indices = list(prompts)
  graded: dict[
    int, dict[int, tuple[types.Completion, Future[ItemOutcome]]]
  ] = {}
  sampled: list[int] = []  # indices of items whose responses are all sampled

  def record(index: int) -> Record:
    return record_files.make(
      items[index],
      graded.pop(index),
      policy.tokenizer,
      prompts[index].prefill,
    )

  answers = agent(policy, list(prompts.values()), samples, indices)
  for position, sample, completion in policy.loop.iterate(answers):
    index = indices[position]
    is_graded = benchmark.grade_truncated or completion.finish_reason == "stop"
    grade = benchmark.grade(
      executor, items[index], completion.text if is_graded else ""
    )
    responses = graded.setdefault(index, {})
    responses[sample] = completion, grade
    if len(responses) == samples:
      sampled.append(index)
    for done in [i for i in sampled if _is_graded(graded[i])]:
      sampled.remove(done)
      yield items[done], record(done)
  for index in sampled:
    yield items[index], record(index)


def _is_graded(responses: Mapping[int, tuple[types.Completion, Any]]) -> bool:
  return all(grade.done() for _, grade in responses.values())
