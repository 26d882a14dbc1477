"""The program corpus as a tensorflow-datasets array_record data source.

It is built once per settings and read by random access, without TensorFlow.
Held-out programs never occur, not even as a reference in a prompt. The executor
checks every claimed output, and the build fails if one is wrong.
"""

import collections
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, overload

import tensorflow_datasets as tfds

from azr_jax.corpora.programs import heldout
from azr_jax.corpora.programs.conversations import (
  ProgramConversation,
  ProgramMix,
)
from azr_jax.executor import Executor, Job
from azr_jax.grading import values
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.tasks.programs.task import PROPOSE, SOLVE, TASK_TYPES

# Number of conversations that are checked at a time.
_CHECK_BATCH = 2048


def generate(
  seed: int, count: int, mix: ProgramMix
) -> Iterator[ProgramConversation]:
  """Yields `count` conversations, three to solve for each to propose."""
  cycle = [
    (task_type, role)
    for role in (SOLVE, SOLVE, SOLVE, PROPOSE)
    for task_type in TASK_TYPES
  ]
  rng = streams.generator(seed, Purpose.PROGRAM_CORPUS)
  for index in range(count):
    task_type, role = cycle[index % len(cycle)]
    while True:
      conversation = mix.draw(rng, task_type, role)
      if not any(heldout.is_heldout(code) for code in conversation.programs):
        break
    yield conversation


def validate(
  executor: Executor, batch: Sequence[ProgramConversation]
) -> dict[str, int]:
  """Runs the cases of conversations; returns their count per task and role.

  Raises:
    ValueError: a program does not return an output that the corpus claims.
  """
  checked: collections.Counter[str] = collections.Counter()
  jobs = [
    Job(id=str(index), code=case.code, inputs=case.inputs)
    for index, conversation in enumerate(batch)
    for case in (conversation.case,)
  ]
  for conversation, result in zip(batch, executor.map(jobs), strict=True):
    expected = conversation.case.outputs
    is_true = result.status == "ok" and all(
      output is not None and values.values_equal(claimed, output)
      for claimed, output in zip(expected, result.outputs, strict=True)
    )
    if not is_true:
      raise ValueError(
        f"the corpus claims {conversation.case}, the executor returned {result}"
      )
    checked[f"{conversation.task_type}/{conversation.role}"] += 1
  return dict(checked)


class ProgramCorpus(tfds.core.GeneratorBasedBuilder):
  """Builds the dataset: records of prompt, response, task_type and role."""

  VERSION = tfds.core.Version("1.0.0")

  def __init__(
    self,
    *,
    seed: int,
    count: int,
    mix: ProgramMix,
    executor: Executor,
    data_dir: pathlib.Path,
  ):
    """Creates the builder of a folder named by a hash of seed, count and mix.

    Args:
      seed: seed for all random draws.
      count: number of conversations.
      mix: draws the conversations.
      executor: checks the claimed outputs.
      data_dir: parent of the dataset's folder.
    """
    self._seed, self._count, self._mix = seed, count, mix
    self._executor = executor
    fingerprint = json.dumps([seed, count, dataclasses.asdict(mix)])
    digest = hashlib.sha256(fingerprint.encode()).hexdigest()[:12]
    super().__init__(
      data_dir=str(data_dir / digest), file_format="array_record"
    )

  def _info(self) -> tfds.core.DatasetInfo:
    text = tfds.features.Text()
    return self.dataset_info_from_configs(
      features=tfds.features.FeaturesDict(
        {"prompt": text, "response": text, "task_type": text, "role": text}
      )
    )

  def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
    del dl_manager
    return {"train": self._generate_examples()}

  def _generate_examples(self) -> Iterator[tuple[int, dict[str, str]]]:
    batch: list[ProgramConversation] = []
    stream = generate(self._seed, self._count, self._mix)
    for index, conversation in enumerate(stream):
      batch.append(conversation)
      if len(batch) == _CHECK_BATCH or index == self._count - 1:
        validate(self._executor, batch)
        batch = []
      yield (
        index,
        {
          "prompt": conversation.prompt,
          "response": conversation.response,
          "task_type": conversation.task_type,
          "role": conversation.role,
        },
      )


class Pairs(Sequence[tuple[str, str]]):
  """The (prompt, response) pairs of a data source."""

  def __init__(self, source: Any):
    self._source = source

  def __len__(self) -> int:
    return len(self._source)

  @overload
  def __getitem__(self, index: int) -> tuple[str, str]: ...

  @overload
  def __getitem__(self, index: slice) -> list[tuple[str, str]]: ...

  def __getitem__(self, index: int | slice) -> Any:
    if isinstance(index, slice):
      return [self[i] for i in range(*index.indices(len(self)))]
    record = self._source[index]
    return record["prompt"].decode("utf-8"), record["response"].decode("utf-8")


def load(
  *,
  seed: int,
  count: int,
  mix: ProgramMix,
  executor: Executor,
  data_dir: pathlib.Path,
) -> Pairs:
  """Builds the corpus unless it is cached, and returns its pairs."""
  builder = ProgramCorpus(
    seed=seed,
    count=count,
    mix=mix,
    executor=executor,
    data_dir=data_dir,
  )
  builder.download_and_prepare()
  return Pairs(builder.as_data_source(split="train"))
