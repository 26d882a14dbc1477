"""Generates questions from the 84 reasoning-gym sets of R1-CI (table 6)."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from azr_jax.executor.child.canonical import canonical
from azr_jax.tasks import gym_sets
from azr_jax.tasks.questions.question import Question

PREFIX = "gym/"
NAMES = tuple(
  """
  ab acre advanced_geometry aiw arc_1d arc_agi base_conversion basic_arithmetic
  bf binary_alternation binary_matrix bitwise_arithmetic caesar_cipher
  calendar_arithmetic chain_sum circuit_logic codeio color_cube_rotation
  complex_arithmetic count_bits count_primes countdown course_schedule
  decimal_arithmetic dice emoji_mystery family_relationships figlet_font
  fraction_simplification futoshiki game_of_life game_of_life_halting gcd
  graph_color group_anagrams intermediate_integration isomorphic_strings jugs
  knight_swap knights_knaves largest_island lcm leg_counting letter_jumble
  list_functions manipulate_matrix maze modulo_grid needle_haystack
  number_filtering number_format number_sequence number_sorting
  palindrome_generation palindrome_partitioning polynomial_equations
  polynomial_multiplication pool_matrix products propositional_logic
  quantum_lock ransom_note rearc rectangle_count rotate_matrix rotten_oranges
  rubiks_cube rush_hour self_reference shortest_path simple_equations
  simple_geometry simple_integration sokoban spell_backward spiral_matrix
  string_manipulation syllogism time_intervals tower_of_hanoi tsumego
  word_ladder word_sequence_reversal zebra_puzzles
  """.split()
)


# The executor creates the scorers of these sets in advance, with default
# settings; see `executor/child/libraries.py`.
_WITHOUT_SETTINGS = ("arc_agi", "rearc", "sokoban", "word_ladder")
# Sympy's text for an integral that it cannot solve.
_UNSOLVED = "Integral("


def make(
  name: str,
  count: int,
  seed: int,
  settings: Mapping[str, Any] | None = None,
) -> list[Question]:
  """Generates questions of a set.

  Returns fewer than `count` if there are duplicate questions or integrals
  without a closed form, which are dropped.

  Args:
    name: one of `NAMES`.
    count: the number of entries to generate.
    seed: the seed for all random draws.
    settings: settings that override the set's defaults.

  Raises:
    ValueError: the set is unknown or takes no settings, or reasoning-gym is
      not installed.
  """
  questions: dict[str, Question] = {}
  for question in generate(name, count, seed, settings):
    questions.setdefault(question.text, question)
  return list(questions.values())


def generate(
  name: str,
  count: int,
  seed: int,
  settings: Mapping[str, Any] | None = None,
) -> Iterator[Question]:
  """Yields questions as they are generated. Does not drop duplicates."""
  if name not in NAMES:
    raise ValueError(f"gym set {name!r}: expected one of {NAMES}")
  settings = dict(settings or {})
  if settings and name in _WITHOUT_SETTINGS:
    raise ValueError(
      f"gym set {name!r} with {settings}: expected no settings, because its "
      "scorer is created before they are known"
    )
  entries = gym_sets.entries(name, count, seed, settings)
  for index, entry in enumerate(map(_to_builtin, entries)):
    if _UNSOLVED in (entry["answer"] or ""):
      continue
    yield Question(
      f"{PREFIX}{name}/{seed}/{index}",
      PREFIX + name,
      entry["question"],
      canonical({"entry": entry, "settings": settings}),
    )


def _to_builtin(value: Any) -> Any:
  """Converts NumPy values inside an entry to exact builtin types."""
  if isinstance(value, np.generic | np.ndarray):
    value = value.tolist()
  if isinstance(value, dict):
    return {_to_builtin(k): _to_builtin(v) for k, v in value.items()}
  if isinstance(value, list | tuple):
    return type(value)(map(_to_builtin, value))
  return value
