"""Reads the scores and records that `azr_jax.evaluate` wrote to a folder.

The folders of one model trained with several seeds are joined by commas:
`RUN_0_scores,RUN_1_scores,RUN_2_scores`.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from azr_jax.config import user_files
from azr_jax.evals import pass_at_k, registry

RESULTS = "results.json"


@dataclasses.dataclass(frozen=True)
class ScoredModel:
  """The scores of one model, in one folder per seed.

  Attributes:
    name: the folders as the user wrote them, which identify the model.
    folders: one folder per seed, at least one.
    scores: the scores of each folder, by name.
  """

  name: str
  folders: tuple[pathlib.Path, ...]
  scores: tuple[Mapping[str, float], ...]

  def benchmarks(self) -> list[str]:
    """Returns the benchmarks with scores and records in every folder."""
    return [
      name
      for name in registry.BENCHMARKS
      if all((folder / f"{name}.jsonl").is_file() for folder in self.folders)
      and all(f"{name}/items" in scores for scores in self.scores)
    ]


def read_model(words: str) -> ScoredModel:
  """Reads the scores of one model.

  Args:
    words: folders of `azr_jax.evaluate`, joined by commas.

  Raises:
    ValueError: a folder has no scores, or is listed twice.
  """
  folders = tuple(pathlib.Path(word).expanduser() for word in words.split(","))
  if len({*folders}) < len(folders):
    raise ValueError(f"{words}: expected different folders between commas")
  scores = []
  for folder in folders:
    path = folder / RESULTS
    if not path.is_file():
      raise ValueError(f"{folder}: expected the workdir of azr_jax.evaluate")
    with user_files.reading(path, "results of azr_jax.evaluate"):
      scores.append(dict(user_files.read_object(path)["scores"]))
  return ScoredModel(words, folders, tuple(scores))


def read_items(
  model: ScoredModel, benchmark: str
) -> tuple[dict[str, str], list[dict[str, list[bool]]]]:
  """Returns a benchmark's questions, and which samples are correct.

  Items whose prompts were too long have no record. They count as incorrect but
  are not returned.

  Returns:
    Question by item id, and for each folder the samples' correctness by item
    id.

  Raises:
    ValueError: a file is damaged, or an id has different questions in two
      folders.
  """
  questions: dict[str, str] = {}
  correct: list[dict[str, list[bool]]] = []
  for folder in model.folders:
    path = folder / f"{benchmark}.jsonl"
    with user_files.reading(path, "records of azr_jax.evaluate"):
      found = [_record(line) for line in _lines(path)]
    correct.append({id_: samples for id_, _, samples in found})
    for id_, question, _ in found:
      if questions.setdefault(id_, question) != question:
        raise ValueError(
          f"{path}: item {id_} is another question than in "
          f"{model.folders[0]}: expected scores of the same data"
        )
  return questions, correct


def _lines(path: pathlib.Path) -> list[str]:
  """Returns the complete lines of a file. A killed run may cut off the last."""
  lines = path.read_bytes().decode(user_files.ENCODING).split("\n")
  return [line for line in lines[:-1] if line.strip()]


def _record(line: str) -> tuple[str, str, list[bool]]:
  record = user_files.parse_json(line)
  samples = record["correct"]
  if not samples or not all(isinstance(one, bool) for one in samples):
    raise ValueError(f"correct={samples!r:.80}: expected true or false")
  return str(record["id"]), str(record["question"]), samples


def values(
  correct: Sequence[Mapping[str, Sequence[bool]]],
  ids: Sequence[str],
  num_items: int,
  k: int,
) -> Float[np.ndarray, "seeds items"]:
  """Returns pass@k of all items; items without a record have 0.

  Args:
    correct: for each seed, the samples' correctness by item id.
    ids: the items with a record, in the order of the result.
    num_items: number of items, including those without any record.
    k: the k of pass@k.

  Raises:
    ValueError: an item has fewer than k samples.
  """
  table = np.zeros((len(correct), num_items))
  for seed, samples_of in enumerate(correct):
    for index, id_ in enumerate(ids):
      samples = samples_of.get(id_)
      if samples is None:
        continue
      if len(samples) < k:
        raise ValueError(
          f"item {id_} has {len(samples)} samples: expected at least k={k}"
        )
      table[seed, index] = pass_at_k.unbiased(np.array([samples]), k)[0]
  return table
