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
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from azr_jax import types
from azr_jax.config import user_files
from azr_jax.evals import pass_at_k, prompt_formats
from azr_jax.evals.benchmark import Benchmark, Item, ItemOutcome
from azr_jax.executor import Executor, futures
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.hosts import Hosts
from azr_jax.randomness import keys
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.policy import Agent, Policy
from azr_jax.rollout.tool_runner import split_turns
from azr_jax.run import console, growing_file
from azr_jax.run.growing_file import GrowingFile
from azr_jax.tasks import records as records_lib
from azr_jax.tasks.chats import Chat

KS = (1, 4, 8, 16, 32, 64)
TOO_LONG = "the prompt is too long"
PROGRESS_LINES = 10
# Starts the hint that is appended to errors about public sources.
PASS_DATA = "; or pass the data with"
# The keys that scoring reads from a record.
_KEYS = (
  "correct",
  "responses",
  "timed_out",
  "limits",
  "num_tool_calls",
  "tokens",
  "finish",
)

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class ItemOptions:
  """Which items to run, and how.

  Attributes:
    data: the path or name of the data; "" reads the benchmark's public source.
    limit: the maximum number of items (per subset, if the benchmark has
      `limit_per_subset`); 0 uses the benchmark's default.
    prompt_format: one of `prompt_formats.PROMPT_FORMATS`, or a format of the
      benchmark's own `prompt`.
    samples: the number of responses per item.
    template_arguments: extra arguments of the chat template, by name.
    prefill: the start of replies in the prompt format `chat`. It is prepended
      to responses before they are graded and recorded.
  """

  data: str
  limit: int
  prompt_format: str
  samples: int
  template_arguments: Mapping[str, Any] = dataclasses.field(
    default_factory=dict
  )
  prefill: str = ""


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


def items_of(
  benchmark: Benchmark,
  options: ItemOptions,
  say: Callable[[str], None] = console.print_status,
) -> list[Item]:
  """Reads a benchmark's data and returns its items, up to the limit.

  Args:
    options: which items to return.
    say: prints a status line.

  Raises:
    ValueError: the data cannot be read.
  """
  items = _read_items(benchmark, options.data, say)
  limit = options.limit or benchmark.default_limit
  if not limit:
    return items
  if not benchmark.limit_per_subset:
    return items[:limit]
  subsets = dict.fromkeys(item.subset for item in items)
  return [
    item
    for subset in subsets
    for item in [i for i in items if i.subset == subset][:limit]
  ]


def longest_prompt(
  benchmark: Benchmark,
  options: ItemOptions,
  tokenizer: Tokenizer,
  say: Callable[[str], None] = console.print_status,
) -> int:
  """Returns the number of tokens in a benchmark's longest prompt.

  Args:
    benchmark: the benchmark with its items.
    options: which items, and the format of their prompts.
    tokenizer: the model's tokenizer.
    say: prints a warning about the chat template.

  Raises:
    ValueError: the benchmark does not support the prompt format, or a prefill
      is set although the benchmark writes its own prompts.
  """
  if options.prefill and benchmark.prompt is not None:
    raise ValueError(
      f"{benchmark.name}: prefill={options.prefill!r}: expected '', "
      "because this benchmark writes its own prompts"
    )
  longest = 0
  for item in items_of(benchmark, options):
    try:
      text = _prompt_text(benchmark, item, options, tokenizer)
    except ValueError as error:
      raise ValueError(f"{benchmark.name}: {error}") from error
    longest = max(longest, len(tokenizer.encode_prompt(text)))
  if options.prompt_format == "chat" and tokenizer.has_chat_template:
    _chat(options, tokenizer).check(say)
  return longest


def _read_records_of(
  benchmark: Benchmark, spec: str, is_given: bool
) -> Iterable[Any]:
  """Reads records. If the public source fails, the error suggests --data."""
  try:
    return records_lib.read(spec)
  except ValueError as error:
    if is_given:
      raise
    raise ValueError(
      f"{str(error).splitlines()[0]}{PASS_DATA} --data={benchmark.name}=PATH"
    ) from error


def _read_items(
  benchmark: Benchmark, data: str, say: Callable[[str], None]
) -> list[Item]:
  """Reads all items from `data`, or from the benchmark's public source."""
  spec = data or benchmark.source
  if benchmark.source and not data:
    say(f"{benchmark.name}: reading {spec}")
  if benchmark.opens_data:
    with user_files.reading(spec or benchmark.name, "data of a benchmark"):
      return benchmark.read(data)
  if not spec:
    raise ValueError(
      f"{benchmark.name} has no public source: expected a path to its data"
    )
  with user_files.reading(spec, f"the layout of {benchmark.name}"):
    return benchmark.read(_read_records_of(benchmark, spec, bool(data)))


def run(
  benchmark: Benchmark,
  policy: Policy,
  executor: Executor,
  hosts: Hosts,
  options: ItemOptions,
  path: pathlib.Path | None,
  agent: Agent = policy_lib.single_turn,
  say: Callable[[str], None] = console.print_status,
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
    ValueError: the data cannot be read, or the records belong to other data.
  """
  if benchmark.timeout_s not in (0.0, executor.timeout_s):
    say(
      f"{benchmark.name}: executor.timeout_s={executor.timeout_s:g} CPU "
      f"seconds per test differs from the benchmark's {benchmark.timeout_s:g}"
    )
  items = items_of(benchmark, options, say)
  with contextlib.ExitStack() as stack:
    file, records = None, {}
    if path is not None:
      file = stack.enter_context(GrowingFile(path, hosts.is_primary))
      records = _read_records(file.here, path, items, options.samples)
    # Hosts that disagree on the missing items would deadlock in sampling.
    hosts.assert_equal(f"records of {benchmark.name}", sorted(records))
    missing = [i for i, item in enumerate(items) if item.id not in records]
    prompts = {
      i: _prompt(benchmark, items[i], options, policy) for i in missing
    }
    for index in _too_long(benchmark, policy, items, prompts, say):
      item = items[index]
      records[item.id] = _too_long_record(item, options.samples)
      del prompts[index]
    graded = _sample_and_grade(
      benchmark, policy, executor, items, prompts, options, agent
    )
    _collect(graded, benchmark.name, items, records, hosts, file)
  in_order = [records[item.id] for item in items]
  _warn_of_limits(benchmark.name, in_order, say)
  return scores(benchmark, items, in_order)


def _prompt(
  benchmark: Benchmark, item: Item, options: ItemOptions, policy: Policy
) -> types.Prompt:
  text = _prompt_text(benchmark, item, options, policy.tokenizer)
  return policy.prompt(text, item)


def _prompt_text(
  benchmark: Benchmark, item: Item, options: ItemOptions, tokenizer: Tokenizer
) -> str:
  chat = _chat(options, tokenizer)
  if benchmark.prompt is not None:
    return benchmark.prompt(item, options.prompt_format, chat)
  return prompt_formats.prompt(
    item.question, benchmark.answer_format, options.prompt_format, chat
  )


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


def _chat(options: ItemOptions, tokenizer: Tokenizer) -> Chat:
  return Chat(tokenizer, options.template_arguments, options.prefill)


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


def _too_long_record(item: Item, samples: int) -> Record:
  """Returns an unsampled item's record, which never goes into the file."""
  empty = types.Completion(
    np.zeros(0, np.int32),
    np.zeros(0, np.float32),
    np.zeros(0, bool),
    "length",
    "",
  )
  grade = futures.done(ItemOutcome(False, TOO_LONG))
  return _record(item, dict.fromkeys(range(samples), (empty, grade)), None)


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
        file.append(json.dumps(record, ensure_ascii=False) + "\n")
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
  options: ItemOptions,
  agent: Agent,
) -> Iterator[tuple[Item, Record]]:
  """Yields each item with its record once all its responses are graded.

  Args:
    benchmark: the benchmark, which grades the responses.
    policy: the policy that samples them.
    executor: the executor of the graders.
    items: all items of the benchmark.
    prompts: the prompts to sample, by item index.
    options: the number of responses per prompt and their prefill are read.
    agent: answers the prompts with the policy.
  """
  indices = list(prompts)
  graded: dict[
    int, dict[int, tuple[types.Completion, Future[ItemOutcome]]]
  ] = {}
  sampled: list[int] = []  # indices of items whose responses are all sampled
  samples, prefill = options.samples, options.prefill
  answers = agent(policy, list(prompts.values()), samples, indices)
  for position, sample, completion in policy.loop.iterate(answers):
    index = indices[position]
    if prefill:
      text = f"{prefill}{completion.text}"
      completion = dataclasses.replace(completion, text=text)
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
      item = items[done]
      yield item, _record(item, graded.pop(done), policy.tokenizer)
  for index in sampled:
    item = items[index]
    yield item, _record(item, graded.pop(index), policy.tokenizer)


def _is_graded(responses: Mapping[int, tuple[types.Completion, Any]]) -> bool:
  return all(grade.done() for _, grade in responses.values())


def _record(
  item: Item, responses: Mapping[int, Any], tokenizer: Tokenizer | None
) -> Record:
  """Waits for an item's grades and returns its record.

  Conversations with tool calls are recorded in full, including tool outputs.
  """
  graded = [responses[sample] for sample in range(len(responses))]
  grades = [grade.result() for _, grade in graded]
  parts = [
    split_turns(completion.token_ids.tolist(), completion.loss_mask.tolist())
    for completion, _ in graded
  ]
  calls = [sum(not is_model for is_model, _ in turns) for turns in parts]
  record: Record = {"num_tool_calls": calls}
  if tokenizer is not None and any(calls):
    record["conversations"] = [
      "".join(tokenizer.decode(ids) for _, ids in turns) for turns in parts
    ]
  return record | {
    "id": item.id,
    "subset": item.subset,
    "question": item.question,
    "reference": dict(item.reference),
    "correct": [grade.correct for grade in grades],
    "timed_out": [grade.timed_out for grade in grades],
    "limits": [grade.limit for grade in grades],
    "details": [grade.detail for grade in grades],
    "responses": [completion.text for completion, _ in graded],
    "tokens": [len(completion.token_ids) for completion, _ in graded],
    "finish": [completion.finish_reason for completion, _ in graded],
  }


def read_records(path: pathlib.Path) -> list[Record]:
  """Returns the records of a complete file, in file order.

  Args:
    path: the file, local or in an object store.

  Raises:
    ValueError: the file does not exist or does not hold records.
  """
  with (
    user_files.reading(path, "records of azr_jax.evaluate"),
    growing_file.on_this_machine(path) as here,
  ):
    records = list(records_lib.read(str(here)))
    for record in records:
      if not isinstance(record, dict):
        raise TypeError(f"{record!r:.80} is not a record")
    return records


def _read_records(
  here: pathlib.Path, path: pathlib.Path, items: Sequence[Item], samples: int
) -> dict[str, Record]:
  """Returns an earlier run's records by item id.

  A killed run may leave a partial last line, which is removed from the file.

  Args:
    here: the local copy of the file.
    path: the path to show in errors.
    items: the items of this run. Records of other items are skipped.
    samples: the number of responses per item.

  Raises:
    ValueError: the records have other questions or another number of samples.
  """
  if not here.exists():
    return {}
  questions = {item.id: item.question for item in items}
  records: dict[str, Record] = {}
  complete_bytes = 0
  with here.open("rb") as file:
    for line in file:
      try:
        record = json.loads(line)
      except ValueError:
        break
      if not line.endswith(b"\n"):  # cut off just before the line break
        break
      complete_bytes += len(line)
      with user_files.reading(path, "records of azr_jax.evaluate"):
        missing = [key for key in _KEYS if key not in record]
        if missing:
          raise ValueError(f"a record lacks {missing[0]!r}")
        is_other = len(record["correct"]) != samples or (
          questions.get(record["id"], record["question"]) != record["question"]
        )
      if is_other:
        raise ValueError(
          f"{path}: the records have other questions or another number of "
          "samples: expected another --workdir"
        )
      if record["id"] in questions:
        records[record["id"]] = record
  if complete_bytes < here.stat().st_size:
    with here.open("r+b") as file:
      file.truncate(complete_bytes)
  return records


def scores(
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
