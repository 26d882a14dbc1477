"""Builds the corpora of supervised training by name."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

from azr_jax.config.settings import Settings, setting
from azr_jax.corpora import (
  arithmetic,
  countdown,
  demonstrations,
  questions,
  rows,
)
from azr_jax.corpora.corpus import Corpus, from_pairs
from azr_jax.corpora.programs import conversations, tokenizer
from azr_jax.executor import Executor


@dataclasses.dataclass(frozen=True)
class ProgramsSettings(Settings):
  """Section `programs`: conversations around procedural programs."""

  seed: int = setting(0, "seed for all random draws", minimum=0, expert=True)
  count: int = setting(240_000, "conversations", minimum=1)
  mix: conversations.ProgramCorpusSettings = (
    conversations.ProgramCorpusSettings()
  )


@dataclasses.dataclass(frozen=True)
class DemonstrationsSettings(Settings):
  """Section `demonstrations`: conversations sampled from a model."""

  path: str = setting(
    "trajectories/trajectories.jsonl",
    "the file written by azr_jax.trajectories --workdir=trajectories",
    required=True,
  )


@dataclasses.dataclass(frozen=True)
class Resources:
  """The resources for building corpora.

  Attributes:
    make_executor: starts an executor for checking programs.
    folder: the folder for cached corpora.
  """

  make_executor: Callable[[], Executor]
  folder: pathlib.Path


def _programs(settings: ProgramsSettings, resources: Resources) -> Corpus:
  # tensorflow-datasets takes a quarter of a second to import.
  from azr_jax.corpora.programs import dataset

  with resources.make_executor() as executor:
    pairs = dataset.load(
      seed=settings.seed,
      count=settings.count,
      mix=conversations.ProgramMix(**vars(settings.mix)),
      executor=executor,
      data_dir=resources.folder,
    )
  return Corpus(from_pairs(pairs), tokenizer.train_tokenizer)


def _countdown(
  settings: countdown.CountdownCorpusSettings, resources: Resources
) -> Corpus:
  del resources
  pairs = list(countdown.conversations(**vars(settings)))
  return Corpus(from_pairs(pairs), countdown.train_tokenizer)


def _arithmetic(
  settings: arithmetic.ArithmeticSettings, resources: Resources
) -> Corpus:
  del resources
  pairs = list(arithmetic.conversations(**vars(settings)))
  return Corpus(from_pairs(pairs), arithmetic.train_tokenizer)


def _questions(
  settings: questions.QuestionCorpusSettings, resources: Resources
) -> Corpus:
  del resources
  return Corpus(
    list(questions.conversations(**vars(settings))), questions.train_tokenizer
  )


def _demonstrations(
  settings: DemonstrationsSettings, resources: Resources
) -> Corpus:
  del resources
  found = demonstrations.read(pathlib.Path(settings.path).expanduser())
  return Corpus(
    [demonstration.conversation() for demonstration in found],
    questions.train_tokenizer,
  )


def _rows(settings: rows.RowCorpusSettings, resources: Resources) -> Corpus:
  del resources
  found = rows.conversations(
    settings.data, settings.completion_column, settings.reader, settings.writer
  )
  return Corpus(
    found,
    rows.train_tokenizer,
    lambda tokenizer, say: settings.writer.check(found[0].row, tokenizer, say),
  )


@dataclasses.dataclass(frozen=True)
class Kind:
  """A type of corpus.

  Attributes:
    Settings: the class of its config section.
    build: builds the corpus from its settings and resources.
  """

  Settings: type[Settings]
  build: Callable[[Any, Resources], Corpus]


# `data.kind` -> the corpus. Its config section has the same name.
KINDS: dict[str, Kind] = {
  "programs": Kind(ProgramsSettings, _programs),
  "countdown": Kind(countdown.CountdownCorpusSettings, _countdown),
  "arithmetic": Kind(arithmetic.ArithmeticSettings, _arithmetic),
  "questions": Kind(questions.QuestionCorpusSettings, _questions),
  "demonstrations": Kind(DemonstrationsSettings, _demonstrations),
  "rows": Kind(rows.RowCorpusSettings, _rows),
}
