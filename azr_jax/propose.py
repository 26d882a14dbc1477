"""Makes a pool of Countdown puzzles to train on: a model's, or random ones.

  python -m azr_jax.propose --config=configs/propose.py:tiny --model=SPEC \\
      --out=FILE.jsonl [--count=603]
  python -m azr_jax.propose --random --out=FILE.jsonl

A frozen model continues a few examples; what can be read, is in range, new, in
the training split and solvable is kept. `--random` draws puzzles uniformly from
the same range through the same filter, for comparison (seed 003, section 3.2).
"""

import collections
import json
import pathlib
from collections.abc import Iterator

import jax
import ml_collections
import numpy as np
from absl import app, flags, logging
from ml_collections import config_flags

from azr_jax import evaluate
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout import sampler as sampler_lib
from azr_jax.tasks.countdown import dataset, generator, prompts, proposals
from azr_jax.trainer import build as parts
from azr_jax.trainer import checks, schema


def propose(
  config: ml_collections.ConfigDict,
  model_spec: str | None,
  out: str,
  count: int,
) -> dict[str, float]:
  """Writes a pool in the public layout; returns what became of the proposals.

  Args:
    config: of `configs/propose.py`.
    model_spec: a model spec or run folder; None draws at random.
    out: the file of JSON lines.
    count: most puzzles; the model may give fewer.

  Raises:
    ValueError: a config value is not what is expected, or nothing was kept.
  """
  checks.check(config, schema.PROPOSE_CHECKS)
  found = _random(config.seed)
  if model_spec is not None:
    found = _continued(config, model_spec)
  kept: dict[object, Puzzle] = {}
  outcomes: collections.Counter[str] = collections.Counter()
  for puzzle in found:
    outcomes[proposals.rejection(puzzle, kept) or "kept"] += 1
    if outcomes["kept"] > len(kept) and puzzle is not None:
      kept[puzzle.key] = puzzle
    if len(kept) == count:
      break
  if not kept:
    raise ValueError(f"no proposal was kept: {dict(outcomes)}")
  dataset.write(pathlib.Path(out).expanduser(), list(kept.values()))
  tried = sum(outcomes.values())
  return {name: outcomes[name] / tried for name in sorted(outcomes)} | {
    "tried": float(tried),
    "puzzles": float(len(kept)),
  }


def _random(seed: int) -> Iterator[Puzzle]:
  """Endless puzzles, uniform in the range, most of them unsolvable."""
  rng = np.random.default_rng((seed, 3))
  while True:
    size = int(rng.choice(generator.COUNTS))
    numbers = rng.integers(1, generator.LARGEST_NUMBER + 1, size).tolist()
    low, high = 1, proposals.LARGEST_TARGET
    yield Puzzle(tuple(numbers), int(rng.integers(low, high + 1)))


def _continued(
  config: ml_collections.ConfigDict, model_spec: str
) -> Iterator[Puzzle | None]:
  """What a model proposes after examples from the training split."""
  c = config.propose
  mesh = mesh_lib.make_mesh(config.mesh)
  source, params = evaluate.load_model(config, model_spec, mesh)
  sampler = sampler_lib.Sampler(
    parts.build_model(config, source.config, mesh),
    source.tokenizer,
    parts.rollout_mesh(config, mesh),
    parts.sharding_rules(config),
    parts.sampler_settings(config),
  )
  policy = policy_lib.Policy(
    sampler,
    source.tokenizer,
    sampler.compute_params(params),
    jax.random.key(config.seed),
  )
  shown = [
    puzzle
    for puzzle, _ in generator.generate(config.seed, c.prompts * c.references)
  ]
  asked = [
    policy.prompt(
      prompts.propose_prompt(
        shown[start : start + c.references], c.prompt_style
      )
    )
    for start in range(0, len(shown), c.references)
  ]
  replies = {
    (prompt, sample): completion.text
    for prompt, sample, completion in policy.sample(asked, c.samples)
  }
  # Not as they finish: the pool must not be of the shortest.
  rng = np.random.default_rng((config.seed, 4))
  order = sorted(replies)
  for index in rng.permutation(len(order)).tolist():
    yield prompts.parse_proposal(replies[order[index]], c.prompt_style)


def run() -> None:
  """The console script."""
  config = config_flags.DEFINE_config_file(
    "config", "configs/propose.py", "How proposals are sampled."
  )
  model = flags.DEFINE_string("model", None, "A model spec or run folder.")
  at_random = flags.DEFINE_bool("random", False, "No model: draw at random.")
  out = flags.DEFINE_string("out", None, "The file to write.", required=True)
  count = flags.DEFINE_integer("count", 603, "Most puzzles.", lower_bound=1)

  def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)
    if at_random.value == (model.value is not None):
      raise app.UsageError("expected either --model=SPEC or --random")
    found = propose(config.value, model.value, out.value, count.value)
    print(json.dumps(found, indent=2))

  app.run(main)


if __name__ == "__main__":
  run()
