"""The libraries that jobs may ask for beside the standard library.

A zygote imports them before it enters its sandbox, because files are denied
afterwards. Then it runs the library's warm-up, so that modules and tables that
the library loads only on use are there too, and no child has to load them.

A module of `azr_jax` can be a library, too, by its full name. It defines a
function `warm_up()`.

Every program of a pool can use the pool's libraries. Therefore jobs that name a
library run in a separate pool (`executor.py`).
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
for reference, answer in CASES:
  parsed = [parse("$" + text + "$", KINDS, parsing_timeout=None)
            for text in (reference, answer)]
  verify(*parsed, timeout_seconds=None)
  verify(parsed[1], parsed[0], timeout_seconds=None)
""",
  # `ready` returns the scorer of a data set. It builds whole data sets in
  # advance, because that is slow, but only for the few scorers that need more
  # than the entry and the settings.
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
  # Scripts may use numpy and sympy (`scripts.py`).
  "numpy": """
import importlib
import numpy
for part in ("fft", "linalg", "ma", "polynomial", "random", "testing"):
  importlib.import_module("numpy." + part)
numpy.linalg.solve(numpy.eye(2), numpy.ones(2))
# A fixed seed, because the system's randomness is out of reach.
numpy.random.bit_generator.randbits = lambda bits: 0
numpy.random.default_rng().random(), numpy.random.RandomState().rand()
numpy.random.seed(0)
str(numpy.ones(2))
""",
  "sympy": """
# Sympy imports much of itself on use, so import all that is meant for scripts.
import importlib, pkgutil, sympy, warnings
OTHER = ("tests", "benchmarks", "physics", "plotting", "parsing", "interactive",
         "testing", "this", "conftest", "galgebra")
with warnings.catch_warnings(action="ignore"):
  for module in pkgutil.walk_packages(sympy.__path__, "sympy."):
    if not set(module.name.split(".")) & set(OTHER):
      importlib.import_module(module.name)
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


_PACKAGE = "azr_jax."


def check(names):
  """Checks that libraries are known and installed.

  Raises:
    ValueError: one is not; the message names it.
  """
  for name in names:
    if name not in LIBRARIES and not name.startswith(_PACKAGE):
      raise ValueError(
        f"libraries has {name!r:.80}; expected of {sorted(LIBRARIES)}"
      )
    if not _is_installed(name):
      raise ValueError(
        f"libraries has {name}, which is not installed; expected "
        "`pip install -e '.[eval]'` to have been run"
      )


def _is_installed(name):
  try:
    return importlib.util.find_spec(name) is not None
  except ModuleNotFoundError:  # A package that would hold it does not exist.
    return False


def load(names, paths):
  """Imports the named libraries from the given folders and warms them up."""
  if not names:
    return
  before = list(sys.path)
  sys.path.extend(paths)
  for name in names:
    module = importlib.import_module(name)
    if name in LIBRARIES:
      exec(LIBRARIES[name], {})
    else:
      module.warm_up()
  sys.path[:] = before
