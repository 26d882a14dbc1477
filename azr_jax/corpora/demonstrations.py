"""Correct conversations sampled from a model, for supervised training.

Paper: R1-CI, section 4.1. A file has one conversation per line, a JSON object
with `id`, `task`, `solution_style`, `prompt` and `turns`. The turns are
assistant turns and tool outputs, alternating; only assistant turns are trained
on.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Sequence

from azr_jax.config import user_files
from azr_jax.corpora.corpus import Conversation
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.tools import code_blocks


@dataclasses.dataclass(frozen=True)
class Demonstration:
  """A correct conversation about a question, to train on.

  Attributes:
    id: the question's id.
    task: the question's task.
    solution_style: how the prompt asks for text or code, one of
      `tasks.questions.prompts.SOLUTION_STYLES`.
    prompt: the text of the prompt.
    turns: assistant turns and tool outputs, alternating. The first and the last
      are assistant turns.
  """

  id: str
  task: str
  solution_style: str
  prompt: str
  turns: tuple[str, ...]

  def conversation(self) -> Conversation:
    """Converts it to the type for supervised training."""
    return Conversation(self.prompt, self.turns)


_FIELDS = [field.name for field in dataclasses.fields(Demonstration)]


def is_well_formed(turns: Sequence[str]) -> bool:
  """Returns whether the last turn ends in an answer and the others in code."""
  assistant_turns = turns[::2]
  return len(turns) % 2 == 1 and all(
    code_blocks.is_well_formed(turn, index == len(assistant_turns) - 1)
    for index, turn in enumerate(assistant_turns)
  )


def choose(
  demonstrations: Iterable[Demonstration],
  per_task: int,
  multi_turn_weight: float,
  seed: int,
) -> list[Demonstration]:
  """Samples distinct conversations for every task.

  Args:
    demonstrations: correct conversations; duplicates are dropped.
    per_task: maximum number of conversations per task; paper: 70.
    multi_turn_weight: weight of a conversation with code, relative to one
      without code.
    seed: seed for all random draws.

  Returns:
    The sampled conversations, task by task, otherwise in their given order.
  """
  distinct = list(dict.fromkeys(demonstrations))
  rng = streams.generator(seed, Purpose.DEMONSTRATIONS)
  # The items with the largest keys are a weighted sample without replacement
  # (Efraimidis and Spirakis, 2006).
  keys = [
    rng.random() ** (1.0 / (multi_turn_weight if len(t.turns) > 1 else 1.0))
    for t in distinct
  ]
  chosen = []
  for task in dict.fromkeys(t.task for t in distinct):
    indices = [i for i, t in enumerate(distinct) if t.task == task]
    indices.sort(key=lambda i: -keys[i])
    chosen += [distinct[i] for i in sorted(indices[:per_task])]
  return chosen


def write(path: pathlib.Path, demonstrations: Iterable[Demonstration]) -> None:
  """Writes the conversations as JSON lines."""
  with path.open("w", encoding="utf-8") as file:
    for demonstration in demonstrations:
      line = json.dumps(dataclasses.asdict(demonstration), ensure_ascii=False)
      file.write(line + "\n")


def read(path: pathlib.Path) -> list[Demonstration]:
  """Reads the conversations that `write` wrote.

  Raises:
    ValueError: the file is missing or empty, or a line is not a conversation
      that starts and ends with an assistant turn.
  """
  if not path.is_file():
    raise ValueError(
      f"{path}: there is no such file; expected one of azr_jax.trajectories"
    )
  demonstrations = []
  with user_files.reading(path, "conversations"):
    lines = path.read_text(user_files.ENCODING).split("\n")
  for number, line in enumerate(filter(None, lines), 1):
    with user_files.reading(f"{path}:{number}", "a conversation"):
      record = user_files.parse_json(line)
      demonstration = Demonstration(*(record[field] for field in _FIELDS))
      demonstration = dataclasses.replace(
        demonstration, turns=tuple(demonstration.turns)
      )
    are_texts = isinstance(record["turns"], list) and all(
      isinstance(text, str)
      for text in (demonstration.prompt, *demonstration.turns)
    )
    if len(demonstration.turns) % 2 == 0 or not are_texts:
      raise ValueError(
        f"{path}:{number}: {len(demonstration.turns)} turns; expected texts, "
        "of which the first and the last are assistant turns"
      )
    demonstrations.append(demonstration)
  if not demonstrations:
    raise ValueError(f"{path}: expected at least one conversation")
  return demonstrations
