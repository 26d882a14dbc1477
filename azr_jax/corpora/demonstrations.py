"""Right conversations to learn from, of a model's own (seed 001, section 4.1).

A file has a conversation a line: `id`, `task`, `form`, `prompt`, and `parts`,
which are the model's and the interpreter's in turn; only the model's are
learned. Any file that has these can be learned from.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from azr_jax.corpora.corpus import Conversation
from azr_jax.rollout import code_blocks


@dataclasses.dataclass(frozen=True)
class Trajectory:
  """A conversation about a question.

  Attributes:
    id: of the question.
    task: of the question.
    form: of the prompt, one of `prompts.FORMS`.
    prompt: what was asked.
    parts: the model's and the interpreter's, in turn; the first and the last
      are the model's.
  """

  id: str
  task: str
  form: str
  prompt: str
  parts: tuple[str, ...]

  def conversation(self) -> Conversation:
    """What supervised training learns from."""
    return Conversation(self.prompt, self.parts)


_FIELDS = [field.name for field in dataclasses.fields(Trajectory)]


def is_well_formed(parts: Sequence[str]) -> bool:
  """Whether each of the model's parts ends as it should."""
  own = parts[::2]
  return len(parts) % 2 == 1 and all(
    code_blocks.is_well_formed(reply, place == len(own) - 1)
    for place, reply in enumerate(own)
  )


def choose(
  trajectories: Iterable[Trajectory],
  per_task: int,
  multi_turn_weight: float,
  seed: int,
) -> list[Trajectory]:
  """Draws conversations of every task, the same one never twice.

  Args:
    trajectories: right ones.
    per_task: most of a task; paper: 70.
    multi_turn_weight: how much more likely one with code is drawn than one
      without, where not all are; 1: as likely.
    seed: root of the draws.
  """
  distinct = list(dict.fromkeys(trajectories))
  rng = np.random.default_rng((seed, 3))
  # Keys whose largest are a weighted draw without replacement (Efraimidis and
  # Spirakis, 2006).
  keys = [
    rng.random() ** (1.0 / (multi_turn_weight if len(t.parts) > 1 else 1.0))
    for t in distinct
  ]
  chosen = []
  for task in dict.fromkeys(t.task for t in distinct):
    own = [i for i, t in enumerate(distinct) if t.task == task]
    own.sort(key=lambda i: -keys[i])
    chosen += [distinct[i] for i in sorted(own[:per_task])]
  return chosen


def write(path: pathlib.Path, trajectories: Iterable[Trajectory]) -> None:
  """Writes conversations as lines of JSON."""
  with path.open("w", encoding="utf-8") as file:
    for one in trajectories:
      line = json.dumps(dataclasses.asdict(one), ensure_ascii=False)
      file.write(line + "\n")


def read(path: pathlib.Path) -> list[Trajectory]:
  """Reads what `write` wrote.

  Raises:
    ValueError: the file is missing or empty, or a line is no conversation whose
      first and last parts are the model's.
  """
  if not path.is_file():
    raise ValueError(
      f"{path}: there is no such file; expected one of azr_jax.trajectories"
    )
  found = []
  lines = path.read_text(encoding="utf-8").split("\n")
  for number, line in enumerate(filter(None, lines), 1):
    try:
      record = json.loads(line)
      one = Trajectory(*(record[field] for field in _FIELDS))
      one = dataclasses.replace(one, parts=tuple(one.parts))
    except (ValueError, TypeError, KeyError) as error:
      raise ValueError(
        f"{path}:{number}: {error!r}; expected a conversation"
      ) from None
    texts = isinstance(record["parts"], list) and all(
      isinstance(part, str) for part in (one.prompt, *one.parts)
    )
    if len(one.parts) % 2 == 0 or not texts:
      raise ValueError(
        f"{path}:{number}: {len(one.parts)} parts; expected texts, the first "
        "and the last of them the model's"
      )
    found.append(one)
  if not found:
    raise ValueError(f"{path}: expected at least one conversation")
  return found
