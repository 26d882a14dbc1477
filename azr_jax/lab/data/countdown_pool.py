"""Pools of Countdown puzzles to train on (Countdown, section 3.2).

A frozen model continues a list of examples, or puzzles are drawn uniformly from
the same range. A puzzle is kept if it parses, is in range, new, in the training
split, and solvable.
"""

import collections
import dataclasses
import pathlib
from collections.abc import Iterator

import ml_collections

from azr_jax.config.settings import Settings, setting
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.parallel import memory
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.tasks.countdown import generator, proposals, puzzle_files
from azr_jax.tasks.countdown import prompts as prompt_lib
from azr_jax.tasks.templates import PromptFormat, PromptSettings
from azr_jax.trainer import loading, sizes, user_prompts
from azr_jax.trainer import settings as train_settings
from azr_jax.trainer.settings import SamplingSettings

_PROMPT = {prompt_lib.PROPOSE: prompt_lib.FILES[prompt_lib.PROPOSE]}


@dataclasses.dataclass(frozen=True)
class ProposeSettings(Settings):
  """Section `propose`: how to prompt the frozen model."""

  prompts: int = setting(40, "number of prompts", paper="40", minimum=1)
  samples: int = setting(
    128, "continuations per prompt", paper="128", minimum=1
  )
  references: int = setting(
    6, "examples per prompt", paper="not named", minimum=0
  )
  prompt_format: str = setting(
    "few_shot",
    "prompt format; with prompts.templates, how proposals are read alone",
    choices=prompt_lib.PROMPT_FORMATS,
  )


@dataclasses.dataclass(frozen=True)
class ProposeRunSettings(SamplingSettings):
  """A configuration of `azr_jax.propose`."""

  propose: ProposeSettings = ProposeSettings()
  prompts: PromptSettings = PromptSettings()


@memory.explained(memory.SAMPLING_KEYS)
def propose(
  config: ml_collections.ConfigDict,
  model_spec: str | None,
  out: str,
  count: int,
) -> dict[str, float]:
  """Writes a pool in the public layout.

  Args:
    config: a config of `configs/propose.py`.
    model_spec: a model spec or run folder; None draws random puzzles.
    out: the JSON lines file to write.
    count: maximum number of puzzles; a model may yield fewer.

  Returns:
    The fraction of proposals that were kept and that each reason rejected, and
    the numbers of proposals (`tried`) and of puzzles in the pool.

  Raises:
    ValueError: a config value is not allowed, or no puzzle was kept.
  """
  settings = train_settings.read(ProposeRunSettings, config)
  needed = {} if model_spec is None else _PROMPT
  templates = user_prompts.read(settings.prompts, needed)
  puzzles = _random_puzzles(settings.seed)
  if model_spec is not None:
    prompt_format = templates or settings.propose.prompt_format
    puzzles = _proposed(settings, model_spec, prompt_format)
  kept: dict[object, Puzzle] = {}
  outcomes: collections.Counter[str] = collections.Counter()
  for puzzle in puzzles:
    rejection = proposals.rejection(puzzle, kept)
    outcomes[rejection or "kept"] += 1
    if rejection is None and puzzle is not None:
      kept[puzzle.key] = puzzle
    if len(kept) == count:
      break
  if not kept:
    raise ValueError(f"no proposal was kept: {dict(outcomes)}")
  puzzle_files.write(pathlib.Path(out).expanduser(), list(kept.values()))
  tried = sum(outcomes.values())
  return {name: outcomes[name] / tried for name in sorted(outcomes)} | {
    "tried": float(tried),
    "puzzles": float(len(kept)),
  }


def _random_puzzles(seed: int) -> Iterator[Puzzle]:
  """Yields random puzzles endlessly; most of them are unsolvable."""
  rng = streams.generator(seed, Purpose.RANDOM_PUZZLES)
  while True:
    size = int(rng.choice(generator.COUNTS))
    numbers = rng.integers(1, generator.MAX_NUMBER + 1, size).tolist()
    low, high = 1, proposals.MAX_TARGET
    yield Puzzle(tuple(numbers), int(rng.integers(low, high + 1)))


def _proposed(
  settings: ProposeRunSettings, model_spec: str, prompt_format: PromptFormat
) -> Iterator[Puzzle | None]:
  """Yields a model's proposals; None for one that cannot be parsed."""
  c = settings.propose
  examples = [
    puzzle
    for puzzle, _ in generator.generate(settings.seed, c.prompts * c.references)
  ]
  texts = [
    prompt_lib.propose_prompt(
      examples[index * c.references : (index + 1) * c.references],
      prompt_format,
    )
    for index in range(c.prompts)
  ]
  policy = loading.load_policy(
    settings,
    model_spec,
    workload=lambda tokenizer: sizes.Workload(
      c.prompts * c.samples,
      max(len(tokenizer.encode_prompt(text)) for text in texts),
    ),
  )
  prompts = [policy.prompt(text) for text in texts]
  responses = {
    (prompt, sample): completion.text
    for prompt, sample, completion in policy.sample(prompts, c.samples)
  }
  # Short responses finish first, so sampling order would favor them.
  rng = streams.generator(settings.seed, Purpose.PROPOSALS)
  keys = sorted(responses)
  for index in rng.permutation(len(keys)).tolist():
    yield prompt_lib.parse_proposal(responses[keys[index]], c.prompt_format)
