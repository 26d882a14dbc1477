"""Finished choices whose clients also want scores."""

import collections
from collections.abc import Callable, Iterator

from azr_jax.serving.jobs import NewTokens, SamplingJob
from azr_jax.serving.scoring import Scorer
from azr_jax.types import Params


class Unscored:
  """A queue of finished choices that wait for a second forward pass."""

  def __init__(self, scorer: Scorer | None):
    """Starts empty.

    Args:
      scorer: scores them. None if no job may ask for scores.
    """
    self._scorer = scorer
    self._waiting: collections.deque[tuple[SamplingJob, NewTokens, int]] = (
      collections.deque()
    )

  def __bool__(self) -> bool:
    return bool(self._waiting)

  def add(self, job: SamplingJob, tokens: NewTokens, adapter: int) -> None:
    """Adds the last tokens of a choice, sampled by an adapter of an index."""
    self._waiting.append((job, tokens, adapter))

  def score(
    self,
    params: Params,
    is_open: Callable[[SamplingJob], bool],
    limit: int | None,
  ) -> Iterator[tuple[SamplingJob, NewTokens]]:
    """Yields choices with their scores.

    Args:
      params: the parameters that sampled them.
      is_open: whether the client of a job still waits.
      limit: maximum number of tokens to score now, so that other jobs do not
        wait long; at least one choice is scored. None scores all.
    """
    some: list[tuple[SamplingJob, NewTokens, int]] = []
    total = 0
    while self._waiting:
      job, tokens, _ = self._waiting[0]
      if is_open(job):
        total += _cost(job, tokens)
        if some and limit is not None and total > limit:
          break
        some.append(self._waiting[0])
      self._waiting.popleft()
    if not some:
      return
    assert self._scorer is not None
    prompts = [_prompt(job, tokens) for job, tokens, _ in some]
    scored = self._scorer.score(
      params,
      [
        [*prompt, *tokens.token_ids]
        for prompt, (_, tokens, _) in zip(prompts, some, strict=True)
      ],
      [
        0 if job.scores_prompts else len(prompt)
        for prompt, (job, *_) in zip(prompts, some, strict=True)
      ],
      [adapter for *_, adapter in some],
    )
    for (job, tokens, adapter), scores in zip(some, scored, strict=True):
      if job.prompt_targets is not None and not tokens.choice:
        chosen = self._scorer.score_targets(
          params, _prompt(job, tokens), job.prompt_targets, adapter
        )
        scores = scores._replace(chosen=chosen)
      yield job, tokens._replace(scores=scores)


def _prompt(job: SamplingJob, tokens: NewTokens) -> tuple[int, ...]:
  """Returns the ids of the prompt of a choice."""
  return job.prompts[tokens.choice // job.n].token_ids


def _cost(job: SamplingJob, tokens: NewTokens) -> int:
  """Returns how many tokens the second pass of a choice runs."""
  prompt = len(_prompt(job, tokens))
  columns = 0
  if job.prompt_targets is not None and not tokens.choice:
    columns = job.prompt_targets.shape[1]
  return prompt * (1 + columns) + len(tokens.token_ids)
