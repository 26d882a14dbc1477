"""The libraries that jobs may request besides the standard library.

A zygote imports them before it enters its sandbox, because files are denied
afterwards. It then runs each library's warm-up, which also loads modules and
tables that are loaded on first use, so that no child has to load them.

A module of `azr_jax` can also be requested, by its full name. It must define a
function `warm_up()`.

Every program in a pool can use the pool's libraries. So jobs with libraries run
in separate pools (`executor.py`).
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence

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
  # `make_scorer` returns the scorer of a data set. A few scorers need a built
  # data set besides the entry and the settings. Building is slow, so it is done
  # here, once.
  "reasoning_gym": """
import reasoning_gym, sympy
from reasoning_gym.factory import DATASETS
BUILT_NAMES = ("arc_agi", "rearc", "sokoban", "word_ladder")
BUILT = {name: reasoning_gym.create_dataset(name, size=1, seed=0)
         for name in BUILT_NAMES}
def make_scorer(name, settings):
  kind, config = DATASETS[name]
  scorer = BUILT.get(name) or kind.__new__(kind)
  scorer.config = config(**settings)
  return scorer
reasoning_gym.make_scorer = make_scorer
WARM_UPS = ("simple_integration", "polynomial_multiplication", "countdown",
            "intermediate_integration", "rubiks_cube", "bf", "rush_hour")
for name in WARM_UPS:
  dataset = reasoning_gym.create_dataset(name, size=1, seed=0)
  for answer in (dataset[0]["answer"] or "x", "1 + x"):
    dataset.score_answer(answer, dataset[0])
""",
  "script_runner": "import script_runner\nscript_runner.warm_up()",
  # The libraries below are for scripts (`scripts.py`).
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
import sympy, sympy.stats
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
  "scipy": """
import numpy, scipy
from scipy import integrate, interpolate, optimize, sparse, spatial, stats
square = lambda x: x**2 - 2
optimize.minimize(lambda x: (x**2).sum(), numpy.ones(2))
optimize.root_scalar(square, bracket=(0, 2)), optimize.fsolve(square, 1.0)
optimize.linprog([1, 1], A_ub=[[-1, 0]], b_ub=[-1])
optimize.milp([1, 1], integrality=[1, 1])
optimize.linear_sum_assignment(numpy.eye(3))
optimize.differential_evolution(lambda x: x[0]**2, [(0, 1)], seed=0, maxiter=2)
optimize.curve_fit(lambda x, a: a * x, [1.0, 2.0], [2.0, 4.0])
integrate.quad(square, 0, 1), integrate.solve_ivp(lambda t, y: y, (0, 1), [1])
interpolate.CubicSpline([0, 1, 2], [0, 1, 4])(1.5)
stats.norm.cdf(0), stats.binom(3, 0.5).pmf(1)
stats.ttest_ind([1, 2, 3], [2, 3, 5]), stats.pearsonr([1, 2, 3], [1, 2, 4])
spatial.ConvexHull([[0, 0], [0, 1], [1, 0]]), spatial.KDTree([[0, 0]])
sparse.csgraph.shortest_path(sparse.csr_array(numpy.eye(3)))
sparse.linalg.spsolve(sparse.csc_array(numpy.eye(3)), numpy.ones(3))
""",
  "networkx": """
import networkx
graph = networkx.path_graph(5)
networkx.set_edge_attributes(graph, 1.0, "weight")
networkx.shortest_path(graph, 0, 4, weight="weight")
networkx.minimum_spanning_tree(graph), networkx.pagerank(graph)
networkx.maximum_flow(networkx.DiGraph([(0, 1, {"capacity": 1})]), 0, 1)
networkx.max_weight_matching(graph), networkx.greedy_color(graph)
networkx.betweenness_centrality(graph), networkx.adjacency_matrix(graph)
networkx.is_isomorphic(graph, graph), networkx.find_cliques(graph)
networkx.spring_layout(graph, seed=0), networkx.to_numpy_array(graph)
""",
  "pandas": """
import io, pandas
frame = pandas.DataFrame({"a": [1, 2, 2], "b": list("xyz"), "c": [1.5, 2, 3]})
frame["d"] = pandas.to_datetime(["2024-01-01", "2024-02-01", "2024-03-01"])
str(frame), frame.to_string(), frame.describe(), frame.info(buf=io.StringIO())
frame.groupby("a").agg({"c": ["mean", "sum"]}), frame.merge(frame, on="a")
frame.pivot_table(index="a", columns="b", values="c"), frame.value_counts()
frame.sort_values("c").fillna(0).apply(lambda row: row["a"], axis=1)
frame.query("a > 1 and b == 'y'"), frame.eval("a + c")
frame.corr(numeric_only=True)
frame.set_index("d").resample("MS").sum(numeric_only=True)
frame.c.rolling(2).mean(), frame.b.str.upper().str.contains("X")
pandas.concat([frame, frame]), pandas.crosstab(frame.a, frame.b)
pandas.read_csv(io.StringIO(frame.to_csv(index=False)), parse_dates=["d"])
pandas.read_json(io.StringIO(frame.to_json())), frame.to_dict("records")
pandas.date_range("2024-01-01", periods=3, freq="B"), pandas.cut(frame.a, 2)
""",
}


# BLAS threads do not survive a fork, so a child would wait for them forever.
# The libraries read these variables when they are loaded.
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_PACKAGE = "azr_jax."


# Optional dependencies that scripts must not find, so that a script has the
# same output on every machine.
_BLOCKED_PACKAGES = ("bottleneck", "matplotlib", "numba", "numexpr", "pyarrow")
# Modules in this folder, which a zygote finds without a path.
_LOCAL_MODULES = ("script_runner",)


def check(names: Iterable[str]) -> None:
  """Checks that libraries are known and installed.

  Raises:
    ValueError: a library is not; the message names it.
  """
  for name in names:
    if name not in LIBRARIES and not name.startswith(_PACKAGE):
      raise ValueError(
        f"libraries has {name!r:.80}; expected of {sorted(LIBRARIES)}"
      )
    if not _is_installed(name):
      # Imported here because a zygote imports this file without the package.
      from azr_jax.config import extras

      raise ValueError(f"libraries: {extras.missing(name)}")


def _is_installed(name: str) -> bool:
  try:
    return name in _LOCAL_MODULES or importlib.util.find_spec(name) is not None
  except ModuleNotFoundError:  # Its parent package does not exist.
    return False


def load(names: Sequence[str], paths: Iterable[str]) -> None:
  """Imports the named libraries from the given folders and warms them up."""
  if not names:
    return
  before = list(sys.path)
  sys.path.extend(paths)
  if "script_runner" in names:
    # A module that maps to None cannot be imported.
    vars(sys)["modules"].update(dict.fromkeys(_BLOCKED_PACKAGES))
  # The script runner comes last: it stores the code of all loaded libraries.
  for name in sorted(names, key=lambda name: name == "script_runner"):
    module = importlib.import_module(name)
    if name in LIBRARIES:
      exec(LIBRARIES[name], {})
    else:
      module.warm_up()
  sys.path[:] = before
  _hide_machine_details()


def _hide_machine_details() -> None:
  """Removes cached information about the machine and its settings."""
  if "platform" in sys.modules:
    platform = sys.modules["platform"]
    machine = platform.uname().machine
    public = platform.uname_result("Linux", "", "", "", machine)
    vars(platform)["_uname_cache"] = public
  for name in ONE_THREAD:
    os.environ.pop(name, None)
