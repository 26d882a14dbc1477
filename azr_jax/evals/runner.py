"""Running a benchmark: every item is asked n times, graded, and written down.

The life of a run:
1. items that the records file has are not asked again;
2. the others are sampled as one stream; a reply is graded while others are
   still being sampled;
3. an item whose replies are all graded is a line of the records file;
4. scores are made of the file, so an interrupted run scores as a whole one: an
   item's random numbers depend on its place in the benchmark alone.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.evals import pass_at_k, prompt_formats
from azr_jax.evals.benchmark import Benchmark, Grade, Item
from azr_jax.executor import Executor, futures
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.hosts import Hosts
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.environment import split_parts
from azr_jax.rollout.policy import Ask, Policy
from azr_jax.run import metrics as metrics_lib
from azr_jax.tasks import records as records_lib

KS = (1, 4, 8, 16, 32, 64)
TOO_LONG = "the prompt is too long"
_LINES = 10  # Of progress.


@dataclasses.dataclass(frozen=True)
class RunSettings:
  """How to run.

  Attributes:
    data: where the data is; "": the benchmark's public source.
    limit: most items (of a kind, where the benchmark says so); 0: all.
    style: of the prompts.
    samples: replies to each item.
  """

  data: str
  limit: int
  style: str
  samples: int


def items_of(benchmark: Benchmark, settings: RunSettings) -> list[Item]:
  """The items to ask.

  Raises:
    ValueError: the data cannot be read.
  """
  spec = settings.data or benchmark.source
  if benchmark.source and not settings.data:
    metrics_lib.say(f"{benchmark.name}: reading {spec}")
  if benchmark.reads_by_name:
    items = benchmark.read(settings.data)
  elif not spec:
    raise ValueError(
      f"{benchmark.name} has no public source: expected its data"
    )
  else:
    try:
      items = benchmark.read(records_lib.read(spec))
    except KeyError as error:
      raise ValueError(
        f"{spec}: expected the layout of {benchmark.name}, with {error}"
      ) from None
  limit = settings.limit or benchmark.default_limit
  if not limit:
    return items
  if not benchmark.by_kind:
    return items[:limit]
  kinds = dict.fromkeys(item.kind for item in items)
  return [
    item
    for kind in kinds
    for item in [i for i in items if i.kind == kind][:limit]
  ]


def run(
  benchmark: Benchmark,
  policy: Policy,
  executor: Executor,
  hosts: Hosts,
  settings: RunSettings,
  path: pathlib.Path | None,
  ask: Ask = policy_lib.ask,
) -> dict[str, float]:
  """Runs what is missing of a benchmark; returns all its scores.

  Args:
    benchmark: what to ask.
    policy: samples the replies.
    executor: grades them. Every host grades all: what costs is sampling.
    hosts: of this run; all must see the records file, or none.
    settings: see there.
    path: the records file, which may have been begun; None: none is kept.
    ask: asks the policy.

  Returns:
    pass@k by both meanings with standard errors, pass@1 by kind, the share of
    replies that ended by themselves, tokens of a reply, items, those of them
    whose prompts were too long to be asked (they count as wrong), and what
    else the benchmark adds; names begin with the benchmark's.

  Raises:
    ValueError: the data cannot be read, or the records are of something else.
  """
  items = items_of(benchmark, settings)
  known = _read(path, items, settings.samples) if path else {}
  # Or some would wait for others to sample what they need not.
  hosts.assert_equal(f"records of {benchmark.name}", sorted(known))
  missing = [i for i, item in enumerate(items) if item.id not in known]
  prompts = {
    i: _prompt(benchmark, items[i], settings.style, policy) for i in missing
  }
  long = [i for i in missing if not policy.fits(prompts[i])]
  if long:
    metrics_lib.say(
      f"{benchmark.name}: {len(long)} prompts are longer than the last of "
      f"rollout.prompt_buckets={policy.sampler.settings.prompt_buckets} and "
      f"count as wrong, {items[long[0]].id} first"
    )
  for index in long:
    known[items[index].id] = _unasked(items[index], settings.samples)
  missing = [i for i in missing if i not in long]
  asked = [prompts[i] for i in missing]
  file = path.open("a", encoding="utf-8") if path and hosts.is_primary else None
  progress = metrics_lib.Progress(len(known) + 1, len(items), unit="item")
  try:
    for place, record in _records(
      benchmark, policy, executor, items, missing, asked, settings.samples, ask
    ):
      known[items[place].id] = record
      if file is not None:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")
        file.flush()
      if hosts.is_primary and len(known) % max(1, len(items) // _LINES) == 0:
        progress.show(len(known), benchmark.name)
  finally:
    if file is not None:
      file.close()
  return scores(benchmark, items, [known[item.id] for item in items])


def _prompt(
  benchmark: Benchmark, item: Item, style: str, policy: Policy
) -> types.Prompt:
  if benchmark.prompt is not None:
    text = benchmark.prompt(item, style, policy.tokenizer)
  else:
    text = prompt_formats.prompt(
      item.request, benchmark.form, style, policy.tokenizer
    )
  return policy.prompt(text, item)


def _unasked(item: Item, samples: int) -> dict[str, Any]:
  """The record of an item whose prompt is too long; no file keeps it."""
  none = types.Completion(
    np.zeros(0, np.int32),
    np.zeros(0, np.float32),
    np.zeros(0, bool),
    "length",
    "",
  )
  grade = futures.done(Grade(False, TOO_LONG))
  return _record(item, dict.fromkeys(range(samples), (none, grade)), None)


def _records(
  benchmark: Benchmark,
  policy: Policy,
  executor: Executor,
  items: Sequence[Item],
  missing: Sequence[int],
  asked: Sequence[types.Prompt],
  samples: int,
  ask: Ask,
) -> Iterator[tuple[int, dict[str, Any]]]:
  """Yields items' places and records, as soon as all is graded."""
  replies: dict[int, dict[int, tuple[types.Completion, Future[Grade]]]] = {}
  whole: list[int] = []
  stream = ask(policy, asked, samples, missing) if asked else ()
  for index, sample, completion in stream:
    place = missing[index]
    grade = benchmark.grade(executor, items[place], completion.text)
    own = replies.setdefault(place, {})
    own[sample] = completion, grade
    if len(own) == samples:
      whole.append(place)
    for done in [p for p in whole if _is_graded(replies[p])]:
      whole.remove(done)
      yield done, _record(items[done], replies.pop(done), policy.tokenizer)
  for place in whole:
    yield place, _record(items[place], replies.pop(place), policy.tokenizer)


def _is_graded(own: dict[int, tuple[types.Completion, Any]]) -> bool:
  return all(grade.done() for _, grade in own.values())


def _record(
  item: Item, own: dict[int, Any], tokenizer: Tokenizer | None
) -> dict[str, Any]:
  """What is kept of an item; of conversations all that was said, too."""
  replies = [own[sample] for sample in range(len(own))]
  grades = [grade.result() for _, grade in replies]
  parts = [
    split_parts(completion.token_ids.tolist(), completion.loss_mask.tolist())
    for completion, _ in replies
  ]
  calls = [sum(not is_own for is_own, _ in said) for said in parts]
  more: dict[str, Any] = {"calls": calls}
  if tokenizer is not None and any(calls):
    more["conversations"] = [
      "".join(tokenizer.decode(ids) for _, ids in said) for said in parts
    ]
  return more | {
    "id": item.id,
    "kind": item.kind,
    "request": item.request,
    "reference": dict(item.reference),
    "correct": [grade.correct for grade in grades],
    "details": [grade.detail for grade in grades],
    "replies": [completion.text for completion, _ in replies],
    "tokens": [len(completion.token_ids) for completion, _ in replies],
    "finish": [completion.finish_reason for completion, _ in replies],
  }


def _read(
  path: pathlib.Path, items: Sequence[Item], samples: int
) -> dict[str, dict[str, Any]]:
  """Records of an earlier run; a line that was cut off is taken away.

  Raises:
    ValueError: they are of other items, or of another number of samples.
  """
  if not path.exists():
    return {}
  requests = {item.id: item.request for item in items}
  known, whole = {}, 0
  with path.open("rb") as file:
    for line in file:
      try:
        record = json.loads(line)
      except ValueError:
        break
      if not line.endswith(b"\n"):  # Cut off just before its end.
        break
      whole += len(line)
      if len(record["correct"]) != samples or (
        requests.get(record["id"], record["request"]) != record["request"]
      ):
        raise ValueError(
          f"{path} holds records of other data or of another number of "
          "samples: expected another --workdir"
        )
      if record["id"] in requests:
        known[record["id"]] = record
  if whole < path.stat().st_size:
    with path.open("r+b") as file:
      file.truncate(whole)
  return known


def scores(
  benchmark: Benchmark, items: Sequence[Item], records: Sequence[dict[str, Any]]
) -> dict[str, float]:
  """Scores of items and their records, in the same order."""
  correct = np.array([record["correct"] for record in records], bool)
  found = pass_at_k.scores(correct, KS, benchmark.name)
  for kind in dict.fromkeys(item.kind for item in items if item.kind):
    own = [item.kind == kind for item in items]
    found[f"{benchmark.name}/pass@1/{kind}"] = float(correct[own].mean())
  finish = [reason for record in records for reason in record["finish"]]
  tokens = [count for record in records for count in record["tokens"]]
  found[f"{benchmark.name}/ended_share"] = float(
    np.mean([reason == "stop" for reason in finish])
  )
  found[f"{benchmark.name}/tokens"] = float(np.mean(tokens))
  found[f"{benchmark.name}/items"] = float(len(items))
  found[f"{benchmark.name}/too_long"] = float(
    sum(record["details"][0] == TOO_LONG for record in records)
  )
  # Files of before do not say.
  calls = [count for record in records for count in record.get("calls", ())]
  if any(calls):
    found[f"{benchmark.name}/calls"] = float(np.mean(calls))
  if benchmark.summarize is not None:
    replies = [record["replies"] for record in records]
    extra = benchmark.summarize(items, correct, replies)
    found |= {f"{benchmark.name}/{name}": v for name, v in extra.items()}
  return found
