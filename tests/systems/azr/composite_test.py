"""Composite programs with the real executor."""

import pytest
from typed import present

from azr_jax.systems.azr.extensions import composite
from azr_jax.tasks.programs.task import Triplet
from azr_jax.tasks.programs.validation import Rejection

DOUBLE = present(composite.as_component("def f(x):\n  return 2 * x", "g_0"))
NEXT = present(composite.as_component("def f(x):\n  return x + 1", "g_1"))


@pytest.mark.parametrize(
  "code, want",
  [
    ("def f(x):\n  return x  # same", "def g_0(x):\n  return x"),
    (
      "import math\ndef f(n):\n  return n * f(n - 1) if n else 1",
      "import math\n\ndef g_0(n):\n  return n * f(n - 1) if n else 1".replace(
        "* f", "* g_0"
      ),
    ),
    ("def h(x):\n  return x\ndef f(x):\n  return h(x)", None),  # Two functions.
    ("K = 1\ndef f(x):\n  return K", None),
    ("def f(x):\n  return x\nK = 1", None),
    ("def f(x):\n  f = x\n  return f", None),
    ("def f(f):\n  return 1", None),
    ("def f(x):\n  return x.f", None),
    ("import math as f\ndef f(x):\n  return x", None),
    ("def f(x):\n  g_1 = x\n  return g_1", None),
    ("def \U0001d41f(x):\n  f = x\n  return f", None),
    ("def f(x):\n  return x\0", None),
    ("def f(x):\n  return '\ud800'", None),
    ("def f(x):\n  return " + "9" * 5000, None),
    ("def f(x):\n  return x +", None),
    ("", None),
    ("def f(x):\n  return " + "-" * 5000 + "x", None),
  ],
)
def test_only_programs_of_one_function_are_renamed(code, want):
  assert composite.as_component(code, "g_0") == want


def test_components_leave_room_and_share_no_names():
  def importing(line, extra=""):
    return Triplet(f"{line}\ndef f(x):\n  return x{extra}", "1", "1")

  pow_ = importing("from math import pow")
  result = composite.components(
    [
      importing("from __future__ import annotations"),
      importing("from math import *"),
      pow_,
      importing("import numpy as pow"),
      importing("from math import pow", " + 1"),
      importing("import os", " + 1" * 1000),
      importing("import os.path"),
    ],
    9,
  )
  assert [part.split("\n")[0] for part in result] == [
    "from math import pow",
    "from math import pow",
    "import os.path",
  ]


def test_without_components_it_is_the_proposed_program():
  code = "def f(x):\n  return g_0(x) + 1"
  parts = [DOUBLE, NEXT]
  assert (
    composite.without_components(f"{DOUBLE}\n{NEXT}\n{code}", parts) == code
  )
  assert composite.without_components(code, ()) == code


def test_components_are_different_and_never_composite():
  simple = [Triplet(f"def f(x):\n  return x + {n}", "1", "2") for n in range(2)]
  made = Triplet(f"{DOUBLE}\ndef f(x):\n  return g_0(x)", "1", "2")
  result = composite.components([made, *simple, simple[0], made], 3)
  assert [part.partition("(")[0] for part in result] == ["def g_0", "def g_1"]


@pytest.mark.parametrize(
  "parts, code, argument, want",
  [
    ([DOUBLE], "def f(x):\n  return g_0(x) + 1", "3", "7"),
    ([DOUBLE, NEXT], "def f(x):\n  return g_0(g_1(x))", "3", "8"),
    ([DOUBLE, NEXT], "def f(x):\n  return g_0(g_1(x)) - 4", "3", "4"),
    # Equality on this single input is enough to be trivial.
    ([DOUBLE], "def f(x):\n  return g_0(x - 1) + x - 1", "3", "6"),
    ([DOUBLE], "def f(x):\n  return g_0(x) + x - 3", "3", "trivial"),
    # Changing arguments or wrapping the value in a container is trivial too.
    ([DOUBLE], "def f(x, y):\n  return g_0(x)", "3, 4", "trivial"),
    ([DOUBLE], "def f(x):\n  return g_0(7)", "3", "trivial"),
    ([DOUBLE], "def f(x):\n  return [g_0(x)]", "3", "trivial"),
    # Each of these calls g_0, but its result does not depend on it.
    ([DOUBLE], "def f(x):\n  g_0(x)\n  return x + 40", "3", "unused"),
    ([DOUBLE], "def f(x):\n  return x + 1 + 0 * g_0(x)", "3", "unused"),
    ([DOUBLE], "assert g_0(1)\ndef f(x):\n  return x - 9", "3", "unused"),
    ([DOUBLE], "def f(x, y=g_0(1)):\n  return x - 9", "3", "unused"),
    ([DOUBLE], "def f(x):\n  assert g_0(1) == 2\n  return x", "3", "unused"),
    ([DOUBLE], "def f(x):\n  return x", "g_0(3)", "input"),
    ([DOUBLE], "g_0 = int\ndef f(x):\n  return g_0(x) + 1", "3", "unused"),
    # A value that `f` mutates differs from the value that g_0 returned.
    (
      [composite.as_component("def f(x):\n  return [x]", "g_0")],
      "def f(x):\n  values = g_0(x)\n  values.append(1)\n  return values",
      "3",
      "[3, 1]",
    ),
    # Recursive calls of a component are not instrumented.
    (
      [
        composite.as_component(
          "def f(n):\n  return n * f(n - 1) if n else 1", "g_0"
        )
      ],
      "def f(n):\n  return g_0(n) - 23",
      "4",
      "1",
    ),
    ([DOUBLE], "def f(x):\n  return g_0(x)", "3", "trivial"),
    ([DOUBLE], "def f(x):\n  return x", "3", "unused"),
    (
      [DOUBLE],
      "def f(x):\n  g_0(x) if x > 5 else 0\n  return x",
      "3",
      "unused",
    ),
    ([DOUBLE, NEXT], "def f(x):\n  return g_1(x) + 1", "3", "unused"),
    (
      [DOUBLE],
      "def g_0(x):\n  return 7\ndef f(x):\n  return g_0(x)",
      "3",
      "unused",
    ),
    (
      [DOUBLE],
      "def f(x):\n  try: g_0(x)\n  except LookupError: pass\n  return x",
      "3",
      "unused",
    ),
    ([DOUBLE], "def f(x):\n  return g_0(x) / 0", "3", "error"),
    ([DOUBLE], "import time\ndef f(x):\n  return g_0(x)", "3", "blocked"),
  ],
)
def test_a_composite_program_needs_each_of_its_parts(
  executor, parts, code, argument, want
):
  result = composite.submit(executor, code, parts, argument).result()
  if isinstance(result, Rejection):
    assert result.reason == want
    return
  assert result == Triplet("\n".join([*parts, code]), argument, want)


def test_a_composite_program_runs_on_the_literal_of_its_input(executor):
  code = "def f(x):\n  return g_0(x[0]) + 1"
  submitted = composite.submit(executor, code, [DOUBLE], "[3] * 2")
  assert submitted.result() == Triplet(f"{DOUBLE}\n{code}", "[3, 3]", "7")
