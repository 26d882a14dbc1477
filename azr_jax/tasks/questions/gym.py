"""The 84 sets of reasoning-gym that seed 001 trains and tests on (table 6)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from azr_jax.executor.canonical import canonical
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


# See `executor/libraries.py`.
_WITHOUT_SETTINGS = ("arc_agi", "rearc", "sokoban", "word_ladder")
# What sympy writes for an integral that it cannot do.
_UNSOLVED = "Integral("


def make(
  name: str,
  count: int,
  seed: int,
  settings: Mapping[str, Any] | None = None,
) -> list[Question]:
  """Makes questions of a set.

  Those that come again are left out, and integrals that have no closed form.

  Args:
    name: one of `NAMES`.
    count: how many are made.
    seed: root of the draws.
    settings: of the set, where they are not its own.

  Raises:
    ValueError: the set is unknown or takes no settings, or reasoning-gym is
      not installed.
  """
  if name not in NAMES:
    raise ValueError(f"gym set {name!r}: expected one of {NAMES}")
  settings = dict(settings or {})
  if settings and name in _WITHOUT_SETTINGS:
    raise ValueError(
      f"gym set {name!r} with {settings}: expected no settings, for its scorer "
      "is made before they are known"
    )
  found: dict[str, Question] = {}
  made = gym_sets.entries(name, count, seed, settings)
  for index, entry in enumerate(map(_plain, made)):
    if _UNSOLVED in (entry["answer"] or ""):
      continue
    text = entry["question"]
    reference = canonical({"entry": entry, "settings": settings})
    found.setdefault(
      text,
      Question(
        f"{PREFIX}{name}/{seed}/{index}", PREFIX + name, text, reference
      ),
    )
  return list(found.values())


def _plain(value: Any) -> Any:
  """The same of exact builtin types, where a set has NumPy's."""
  if isinstance(value, np.generic | np.ndarray):
    value = value.tolist()
  if isinstance(value, dict):
    return {_plain(key): _plain(one) for key, one in value.items()}
  if isinstance(value, list | tuple):
    return type(value)(map(_plain, value))
  return value
