"""Libraries that trusted programs may use beside the standard ones, by name.

A zygote loads them before its walls stand, for with files denied only loaded
modules exist; then it runs a warm-up, so that what a library loads or builds
only when it is used is there too, and no child has to do it again.

Every program of such a pool can reach them; so jobs that name a library run in
a pool of their own (`executor.py`).
"""

import importlib
import importlib.util
import sys

LIBRARIES = {
  "math_verify": """
import antlr4, logging, sympy
logging.disable(logging.CRITICAL)
from math_verify import ExprExtractionConfig, LatexExtractionConfig
from math_verify import parse, verify
KINDS = (LatexExtractionConfig(), ExprExtractionConfig())
CASES = [
  (r"\\frac{1}{2}", "0.5"), (r"x^2+2x+1", r"(x+1)^2"), ("1,2,3", "3,2,1"),
  (r"\\{1,2\\}", r"\\{2,1\\}"), ("[0,1)", "(0,1]"), ("(1,2)", "(1,3)"),
  (r"\\sqrt{2}+\\pi", r"\\sqrt{3}"), ("x<2", "2>x"), ("x=5", "5"),
  (r"\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
   r"\\begin{pmatrix}1&2\\\\3&5\\end{pmatrix}"),
  (r"\\sin x\\cos x", r"\\frac{1}{2}\\sin 2x"),
  (r"(-\\infty,2)\\cup(3,4]", "x>7"),
  (r"\\log_2 8", "3"), (r"\\binom{5}{2}", "10"), ("3+4i", "4i+3"),
  (r"50\\%", "0.5"), (r"\\int x dx", r"x^2/2"), (r"\\text{yes}", "no"),
  (r"e^{x+1}", r"e\\cdot e^x"), (r"|x-1|", "1-x"), (r"n!", r"n\\cdot(n-1)!"),
  (r"\\lfloor x\\rfloor", "x"), (r"2^{100}", "4^{50}"), ("x+y=3", "y=3-x"),
]
for gold, answer in CASES:
  read = [parse("$" + text + "$", KINDS, parsing_timeout=None)
          for text in (gold, answer)]
  verify(*read, timeout_seconds=None)
  verify(read[1], read[0], timeout_seconds=None)
""",
  # `ready` gives what scores the answers of a set. Making whole sets is slow,
  # and few scorers look at more than the entry and the settings.
  "reasoning_gym": """
import reasoning_gym, sympy
from reasoning_gym.factory import DATASETS
WHOLE = ("arc_agi", "rearc", "sokoban", "word_ladder")
MADE = {name: reasoning_gym.create_dataset(name, size=1, seed=0)
        for name in WHOLE}
def ready(name, settings):
  kind, config = DATASETS[name]
  scorer = MADE.get(name) or kind.__new__(kind)
  scorer.config = config(**settings)
  return scorer
reasoning_gym.ready = ready
WARM_UPS = ("simple_integration", "polynomial_multiplication", "countdown",
            "intermediate_integration", "rubiks_cube", "bf", "rush_hour")
for name in WARM_UPS:
  made = reasoning_gym.create_dataset(name, size=1, seed=0)
  for answer in (made[0]["answer"] or "x", "1 + x"):
    made.score_answer(answer, made[0])
""",
  # Our own, for `systems/azr/program_metrics.py`.
  "azr_jax.tasks.programs.measures": """
from azr_jax.tasks.programs import measures
measures.measure("def f(x):\\n  return [x + 1 for x in range(3)]", ["x = 1"])
""",
  # What scripts of conversations may be given (`rollout/python_tool.py`).
  "numpy": """
import importlib
import numpy
for part in ("fft", "linalg", "ma", "polynomial", "random", "testing"):
  importlib.import_module("numpy." + part)
numpy.linalg.solve(numpy.eye(2), numpy.ones(2))
# The same numbers every time; and the system's are out of reach.
numpy.random.bit_generator.randbits = lambda bits: 0
numpy.random.default_rng().random(), numpy.random.RandomState().rand()
numpy.random.seed(0)
str(numpy.ones(2))
""",
  "sympy": """
# Much of it is imported only when it is used: all but what is not for scripts.
import importlib, pkgutil, sympy, warnings
OTHER = ("tests", "benchmarks", "physics", "plotting", "parsing", "interactive",
         "testing", "this", "conftest", "galgebra")
with warnings.catch_warnings(action="ignore"):
  for found in pkgutil.walk_packages(sympy.__path__, "sympy."):
    if not set(found.name.split(".")) & set(OTHER):
      importlib.import_module(found.name)
x = sympy.Symbol("x")
sympy.solve(x**2 - 2, x)
sympy.simplify(sympy.sin(x)**2 + sympy.cos(x)**2)
sympy.integrate(x * sympy.exp(x), x)
sympy.factorint(360), sympy.isprime(97)
sympy.Matrix([[1, 2], [3, 4]]).inv()
sympy.lambdify(x, x**2)(2), sympy.nsolve(sympy.cos(x) - x, 1)
sympy.sympify("x + 1/3"), sympy.latex(x / 2), sympy.diophantine(2*x - 4)
sympy.stats.E(sympy.stats.Die("D", 6))
""",
}


def check(names):
  """Raises ValueError for a library that is unknown or not installed."""
  for name in names:
    if name not in LIBRARIES:
      raise ValueError(
        f"libraries has {name!r:.80}; expected of {sorted(LIBRARIES)}"
      )
    if importlib.util.find_spec(name) is None:
      raise ValueError(
        f"libraries has {name}, which is not installed; expected "
        "`pip install -e '.[eval]'` to have been run"
      )


def load(names, paths):
  """Imports the named libraries from the given folders and warms them up."""
  if not names:
    return
  before = list(sys.path)
  sys.path.extend(paths)
  for name in names:
    importlib.import_module(name)
    exec(LIBRARIES[name], {})
  sys.path[:] = before
