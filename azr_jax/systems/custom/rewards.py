"""Loads the rewards of a run, checks them against the data, and calls them.

A function receives the keyword arguments that it names: `prompt`, `completion`,
`finish_reason`, `num_tokens`, and columns of the row. With `**columns` it
receives all columns. A function of `completions` is called once per prompt, and
every argument is a list with one entry per response.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from azr_jax import types
from azr_jax.config import named
from azr_jax.config.settings import Invalid
from azr_jax.executor import futures
from azr_jax.functions.pool import FunctionPool
from azr_jax.functions.spec import Signature
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.run import metrics
from azr_jax.systems import scores
from azr_jax.systems.custom import judge, sandboxed
from azr_jax.systems.scores import Score
from azr_jax.tasks.table.reading import Row

# Prefix of specs of functions passed to `azr_jax.api`.
GIVEN = "given:"
_WEIGHT = re.compile(r"\s*(?:([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*\*\s*)?(.+?)\s*$")
_OF_COMPLETION = "finish_reason", "num_tokens"
_MANY = {"prompts": "prompt", "completions": "completion"}


@dataclasses.dataclass(frozen=True)
class RewardPart:
  """One of the rewards in `custom.reward`.

  Attributes:
    name: the name in metrics.
    spec: FILE.py:NAME, MODULE:NAME, `judge`, or `GIVEN` with a name.
    weight: the weight in the response's total reward.
  """

  name: str
  spec: str
  weight: float


def parse(text: str) -> list[RewardPart]:
  """Parses a comma-separated list of rewards with optional weights.

  Raises:
    Invalid: the list is empty, or a part is malformed.
  """
  parts: list[RewardPart] = []
  for piece in filter(str.strip, text.split(",")):
    match = _WEIGHT.match(piece)
    assert match is not None  # The piece is not empty.
    number, spec = match.groups()
    try:
      weight = float(number or 1)
      is_named = spec == judge.NAME or spec.startswith(GIVEN)
      name = spec.removeprefix(GIVEN) if is_named else named.split(spec)[1]
    except ValueError:
      raise Invalid(
        "reward",
        f"={text!r}: expected FILE.py:NAME, MODULE:NAME or {judge.NAME}, "
        f"separated by commas, each perhaps behind WEIGHT*, not {piece!r}",
      ) from None
    if abs(weight) > scores.MAX_REWARD:
      raise Invalid(
        "reward",
        f"={text!r}: expected weights of at most {scores.MAX_REWARD:.3g} in "
        f"size, not {piece!r}",
      )
    names = [part.name for part in parts]
    unique = name
    while unique in names:
      unique += "_2"
    parts.append(RewardPart(metrics.plain_name(unique), spec, weight))
  if not parts:
    raise Invalid(
      "reward",
      f"={text!r}: expected a function, as FILE.py:NAME, MODULE:NAME or judge",
    )
  return parts


@dataclasses.dataclass(frozen=True)
class _Reward:
  """A loaded reward function.

  Attributes:
    part: the part of `custom.reward`.
    taken: the function's signature.
    call: maps (executor, arguments by name) to the future of the result.
  """

  part: RewardPart
  taken: Signature
  call: Callable[..., Any]

  @property
  def is_of_group(self) -> bool:
    """Whether the function takes all completions of a prompt at once."""
    return "completions" in self.taken.parameters

  def arguments(self, known: Mapping[str, Any]) -> dict[str, Any]:
    """Selects the arguments that the function takes."""
    names = self.taken.parameters
    if self.taken.takes_any:
      hidden = {*_OF_COMPLETION} - {*names}
      return {name: v for name, v in known.items() if name not in hidden}
    return {name: known.get(name) for name in names if name in known}


class Rewards:
  """The rewards of a run, and the processes that call them.

  Attributes:
    names, weights: the rewards' names and weights, in the order of the config.
  """

  def __init__(
    self,
    parts: Sequence[RewardPart],
    columns: Iterable[str],
    pool: FunctionPool | None,
    in_pool: Sequence[str],
    judge_limit_s: float,
  ):
    """Checks the functions. `close` also closes the pool.

    Args:
      parts: the rewards, with their weights.
      columns: the names of the rows' columns.
      pool: the processes that call functions; None if all are sandboxed.
      in_pool: the names of the rewards in the pool, in its order. The sandbox
        calls the others.
      judge_limit_s: the time limit of the judge.

    Raises:
      ValueError: a function has a required parameter that the rows lack, or
        cannot run in the sandbox.
    """
    self.names = [part.name for part in parts]
    self.weights = [part.weight for part in parts]
    self._pool = pool
    self._judge_limit_s = judge_limit_s
    self._rewards = []
    try:
      for part in parts:
        reward = self._reward(part, in_pool)
        _check(reward, {*columns})
        self._rewards.append(reward)
    except ValueError:
      self.close()
      raise

  def _reward(self, part: RewardPart, in_pool: Sequence[str]) -> _Reward:
    if part.name not in in_pool:
      program = sandboxed.read(part.spec)
      return _Reward(part, program.taken, program.submit)
    pool, index = self._pool, in_pool.index(part.name)
    assert pool is not None
    limit_s = self._judge_limit_s if part.spec == judge.NAME else 0.0
    return _Reward(
      part,
      pool.signatures[index],
      lambda _, arguments: pool.submit(index, arguments, limit_s),
    )

  def close(self) -> None:
    """Stops the worker processes."""
    if self._pool is not None:
      self._pool.close()

  def processes(self) -> list[int]:
    """Returns the process ids of this host's workers."""
    return [] if self._pool is None else self._pool.processes()

  def submit_one(
    self, jobs: SharedJobs, row: Row, completion: types.Completion
  ) -> "Future[dict[str, Score]]":
    """Submits the rewards of a single completion.

    Returns:
      The future of the scores by name. One host computes it.
    """
    chosen = [reward for reward in self._rewards if not reward.is_of_group]
    if not chosen:
      return futures.done({})
    known = _known(row, completion)

    def start(executor: Any) -> "Future[dict[str, Score]]":
      return futures.then(
        futures.gather([r.call(executor, r.arguments(known)) for r in chosen]),
        lambda answers: {
          reward.part.name: scores.of_one(answer)
          for reward, answer in zip(chosen, answers, strict=True)
        },
      )

    return jobs.submit(start)

  def submit_group(
    self, jobs: SharedJobs, row: Row, completions: Sequence[types.Completion]
  ) -> "Future[dict[str, list[Score]]]":
    """Submits the rewards that take all completions of a prompt.

    Returns:
      The future of the scores by name, in the order of the completions.
    """
    chosen = [reward for reward in self._rewards if reward.is_of_group]
    if not chosen:
      return futures.done({})
    every = [_known(row, completion) for completion in completions]
    known = {name: [one[name] for one in every] for name in every[0]}
    for many, one in _MANY.items():
      known[many] = known.pop(one)

    def start(executor: Any) -> "Future[dict[str, list[Score]]]":
      return futures.then(
        futures.gather([r.call(executor, r.arguments(known)) for r in chosen]),
        lambda answers: {
          reward.part.name: scores.of_group(answer, len(completions))
          for reward, answer in zip(chosen, answers, strict=True)
        },
      )

    return jobs.submit(start)


def _known(row: Row, completion: types.Completion) -> dict[str, Any]:
  """Returns every argument that a reward may take, by name."""
  return {
    **dict(
      zip(
        _OF_COMPLETION,
        (completion.finish_reason, int(completion.loss_mask.sum())),
        strict=True,
      )
    ),
    **row.columns,
    "prompt": row.prompt,
    "completion": f"{row.prefill}{completion.text}",
  }


def _check(reward: _Reward, columns: set[str]) -> None:
  """Raises `Invalid` if a reward's signature does not fit the data."""
  taken = reward.taken
  own = {*_MANY} if reward.is_of_group else {*_MANY.values()}
  known = columns | own | {*_OF_COMPLETION}
  lacking = [name for name in taken.required if name not in known]
  if lacking:
    raise Invalid(
      "reward",
      f": {reward.part.name} takes {lacking[0]!r}: expected some of "
      f"{sorted(own)}, {sorted(_OF_COMPLETION)} and the columns "
      f"{sorted(columns)}",
    )
  if not taken.takes_any and not own & {*taken.parameters}:
    raise Invalid(
      "reward",
      f": {reward.part.name} takes {list(taken.parameters)}: expected "
      "'completion' or 'completions' among them",
    )
