"""`countdown`: several answers to each of some held-out puzzles.

Paper: seed 003, section 4.1: 50 puzzles x 16 answers; an answer counts if the
strict verifier gives 1.0. The same puzzles for everyone: the first of the test
split, or those of a file.
"""

import pathlib
from typing import Any

import numpy as np

from azr_jax.benchmarks import pass_at_k
from azr_jax.grading import answer_tags
from azr_jax.grading.verification import Verification
from azr_jax.rollout.policy import Policy
from azr_jax.tasks.countdown import (
  dataset,
  difficulty,
  generator,
  prompts,
  verifier,
)

NAME = "countdown"
PUZZLES = 50
KS = (1, 4, 16)
_SEED = 0


def run(
  policy: Policy,
  verification: Verification,
  *,
  data: str,
  limit: int,
  prompt_style: str,
  samples: int,
) -> tuple[dict[str, float], list[dict[str, Any]]]:
  """Asks each puzzle `samples` times.

  Args:
    policy: samples the answers.
    verification: not needed: verifying runs no program.
    data: a file in the public layout, or "" for the test split.
    limit: how many puzzles; 0: the paper's 50, or all of the file.
    prompt_style: of `prompts.STYLES`.
    samples: answers to each.

  Returns:
    pass@k by both meanings with standard errors, pass@1 by difficulty in
    thirds, answer tags and tokens of a response; and a record per puzzle.
  """
  del verification
  if data:
    puzzles, scores = dataset.read(pathlib.Path(data).expanduser())
  else:
    stream = generator.generate(_SEED, limit or PUZZLES, test=True)
    puzzles, scores = map(list, zip(*stream, strict=True))
  puzzles = puzzles[: limit or None]
  scores = np.asarray(scores[: limit or None])
  asked = [
    policy.prompt(prompts.solve_prompt(puzzle, prompt_style), puzzle)
    for puzzle in puzzles
  ]
  replies = {(p, s): c for p, s, c in policy.sample(asked, samples)}
  verdicts = [
    [
      verifier.verify(puzzle, replies[index, sample].text)
      for sample in range(samples)
    ]
    for index, puzzle in enumerate(puzzles)
  ]
  correct = np.array([[v.right for v in own] for own in verdicts])
  found = pass_at_k.scores(correct, KS, NAME)
  buckets = difficulty.buckets(scores, difficulty.thresholds(scores))
  for index, name in enumerate(difficulty.BUCKETS):
    if np.any(buckets == index):
      found[f"{NAME}/pass@1/{name}"] = float(correct[buckets == index].mean())
  texts = [reply.text for reply in replies.values()]
  found[f"{NAME}/answer_blocks"] = float(
    np.mean([answer_tags.answer_blocks(text) for text in texts])
  )
  found[f"{NAME}/tokens"] = float(
    np.mean([len(reply.token_ids) for reply in replies.values()])
  )
  records = [
    {
      "nums": list(puzzle.numbers),
      "target": puzzle.target,
      "difficulty": float(scores[index]),
      "scores": [verdict.score for verdict in verdicts[index]],
      "reasons": [verdict.reason for verdict in verdicts[index]],
      "responses": [replies[index, sample].text for sample in range(samples)],
    }
    for index, puzzle in enumerate(puzzles)
  ]
  return found, records
