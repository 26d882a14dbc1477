"""The records of a benchmark's items: what a model answered, and its grades.

The runner appends a record to the file as soon as an item is graded. A resumed
run reads them back.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.config import user_files
from azr_jax.evals.benchmark import Item, ItemOutcome
from azr_jax.executor import futures
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout.tool_runner import split_turns
from azr_jax.run import growing_file
from azr_jax.run.growing_file import GrowingFile
from azr_jax.tasks import records as records_lib

# The detail of an item that was not sampled.
TOO_LONG = "the prompt is too long"
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


def make(
  item: Item,
  responses: Mapping[int, Any],
  tokenizer: Tokenizer | None,
  prefill: str = "",
) -> Record:
  """Waits for an item's grades and returns its record.

  Conversations with tool calls are recorded in full, including tool outputs.

  Args:
    item: a question that was answered.
    responses: completion and future grade of each sample. The completions'
      texts start with the prefill.
    tokenizer: decodes conversations; None for responses that are empty.
    prefill: how the responses were told to begin.
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
      prefill + "".join(tokenizer.decode(ids) for _, ids in turns)
      for turns in parts
    ]
  if prefill:
    record["prefill"] = prefill
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


def too_long(item: Item, samples: int) -> Record:
  """Returns an unsampled item's record, which never goes into the file."""
  empty = types.Completion(
    np.zeros(0, np.int32),
    np.zeros(0, np.float32),
    np.zeros(0, bool),
    "length",
    "",
  )
  grade = futures.done(ItemOutcome(False, TOO_LONG))
  return make(item, dict.fromkeys(range(samples), (empty, grade)), None)


def append(file: GrowingFile, record: Record) -> None:
  """Appends a record to a file."""
  file.append(json.dumps(record, ensure_ascii=False) + "\n")


def read(path: pathlib.Path) -> list[Record]:
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


def resume(
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
