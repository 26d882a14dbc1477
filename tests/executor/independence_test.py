"""Tests which programs may run all calls of a job in one process."""

import importlib

import pytest

from azr_jax.executor.child import independence

RUN = "def f(x):\n  return x"
# `match` reads any attribute that a class names.
MATCH = """
U = chr(95) * 2
M = type("M", (type,), {U + "instancecheck" + U: lambda c, x: True})
def f(x):
  C = M("C", (), {U + "match_args" + U: ("real",)})
  match x:
    case C(value): return value
"""
SHARED = {
  "arithmetic": "def f(x):\n  return sum(i * i for i in range(x)) % 7",
  "format": "def f(x):\n  return '{:>{}.2f} {!r}'.format(x, 9, x) + f'{x:.3f}'",
  "words_in_text": "def f(x):\n  # vars, eval\n  return 'getattr id __dict__'",
  "class": """
class Node:
  total = 0
  def __init__(self, x):
    self.x, self._next, self.__own = x, None, x
    Node.total += 1
  def __add__(self, other): return Node(self.x + other.x)
  @property
  def twice(self): return 2 * self.x
class Leaf(Node):
  def __init__(self, x): super().__init__(x)
def f(x): return (Node(x) + Leaf(x)).twice
""",
  "collections": """
import collections
from collections import Counter, defaultdict, deque
def f(x):
  d = defaultdict(list)
  d[x].append(collections.Counter(str(x)).most_common(1))
  return list(deque([x], maxlen=2)), d, Counter("aab"), isinstance(x, deque)
""",
  "library": """
import heapq, itertools, math as m, re, statistics
from bisect import insort
from copy import deepcopy
from fractions import Fraction
from functools import lru_cache, reduce
import functools
@lru_cache(maxsize=None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
@functools.cache
def twice(n): return 2 * n
def f(x):
  h = deepcopy([3, 1]); heapq.heapify(h); insort(h, m.floor(m.pi))
  return reduce(max, itertools.chain(h, re.findall("[0-9]+", "1 2")), fib(x))
""",
  "dataclass": """
from dataclasses import dataclass
@dataclass(frozen=True)
class P:
  a: int = 0
@dataclass
class Q:
  b: int
  def __post_init__(self): self.b += 1
def f(x):
  match P(x):
    case P(a=value): return value
""",
  "namedtuple": """
from collections import namedtuple
P = namedtuple("P", "a b")
def f(x): return P(x, x)._replace(a=1)._asdict()
""",
  "typing": """
from __future__ import annotations
import typing
from typing import Dict, List, Optional
class Node: pass
def f(x: Optional[List[int]], y: typing.Set = ()) -> Dict[str, Node]:
  found: List[Optional[Node]] = []
  return found
""",
  "random": """
import random
from random import Random
def f(x):
  rng = random.Random(x)
  return rng.sample(range(9), 3), Random(1).choice("ab")
""",
  "type": """
class A: pass
def f(x):
  if type(x) in (int, str) or type(x) is A or type(x) != type(None):
    return type(x).__name__
""",
  "generator": "def f(x):\n  def g(): yield x\n  return next(g()), list(g())",
  "exceptions": """
class Bad(ValueError): pass
def f(x):
  try: raise Bad(x)
  except (Bad, KeyError) as error: return error.args, str(error)
  finally: assert x
""",
}
ALONE = {
  "random_state": "import random\ndef f(x):\n  return random.randrange(x)",
  "random_seed": "import random\nrandom.seed(3)\n" + RUN,
  "random_class": "import random\nrandom.Random.count = 1\n" + RUN,
  "random_base": "import random\nclass A(random.Random): pass\n" + RUN,
  "match": MATCH,
  "built_class": 'T = type("T", (), {})\n' + RUN,
  "type_passed_on": "def f(x):\n  return list(map(type, [x]))",
  "type_of_type": "def f(x):\n  return type(type(x))('A', (), {}) == x",
  "type_given_away": "def f(x):\n  return type(x) == x",
  "type_given_to_a_container": "def f(x):\n  return type(x) in x",
  "type_given_in_a_list": "def f(x):\n  return [type(x)] == [x]",
  "type_given_to_a_decorated_class": (
    "@g\nclass A: pass\ndef f(x):\n  return type(x) == A"
  ),
  "type_renamed": "def f(x):\n  type(x).__name__ += 'a'",
  "metaclass": "class A(metaclass=x): pass\n" + RUN,
  "getattr": "def f(x):\n  return getattr(x, 'real')",
  "vars": "def f(x):\n  return vars(x)",
  "id": "def f(x):\n  return id(x) % 2",
  "special": "def f(x):\n  return x.__class__",
  "special_name": "def f(x):\n  return __builtins__",
  "special_method": "class A:\n  __match_args__ = ('a',)\n" + RUN,
  "special_argument": "def f(x, __class__=1):\n  return x",
  "frame": "def f(x):\n  return (i for i in [x]).gi_frame.f_back",
  "frame_by_keyword": (
    "def f(x):\n  match x:\n    case object(gi_frame=a): return a"
  ),
  "traceback": "def f(x):\n  return x.tb_frame",
  "mro": "def f(x):\n  return int.mro()",
  "coroutine": "async def g(): pass\n" + RUN,
  "format_attribute": "def f(x):\n  return '{0.real}'.format(x)",
  "format_item": "def f(x):\n  return '{:{0[0]}}'.format(x, x)",
  "format_of_names": "def f(x):\n  return x.format(x)",
  "format_by_type": "def f(x):\n  return str.format('{0.real}', x)",
  "format_map": "def f(x):\n  return '{0}'.format_map(x)",
  "unknown_module": "import sys\n" + RUN,
  "submodule": "import collections.abc\n" + RUN,
  "star": "from math import *\n" + RUN,
  "relative": "from .math import pi\n" + RUN,
  "module_stored": "import math\nmath.n = 1\n" + RUN,
  "module_passed_on": "import math\ndef f(x):\n  return [math]",
  "module_of_a_module": "import collections\nS = collections._sys\n" + RUN,
  "class_of_python_code": "from collections import Counter\nCounter.n = 1\n"
  + RUN,
  "class_passed_on": "from collections import Counter\nC = Counter\n" + RUN,
  "function_passed_on": "from heapq import merge\nm = [merge]\n" + RUN,
  "two_modules": (
    "import re as m\ndef g():\n  import operator as m\nm.sub.n = 1\n" + RUN
  ),
  "warned_once": "def f(x):\n  return x._randbelow_without_getrandbits(1)",
  "two_ways": (
    "from collections import deque as C, Counter as C\nC.n = 1\n" + RUN
  ),
  "dataclass_of_another": (
    "from dataclasses import dataclass\nD = dataclass(int)\n" + RUN
  ),
  "attrgetter": "from operator import attrgetter\n" + RUN,
  "cache_of_patterns": (
    "import re\ndef f(x):\n  return re.search('a', 'a').re is x"
  ),
  "text_of_a_pattern": (
    "import re\ndef f(x):\n  return re.compile('a').pattern is x"
  ),
  "private_of_a_module": "import re\ndef f(x):\n  return re. _cache",
  "flags": "import re\ndef f(x):\n  return re.I",
  "typing_outside": "from typing import List\nL = List[int]\n" + RUN,
  "typing_of_values": (
    "from typing import List\nK = 1\ndef f(x: List[K]):\n  return x"
  ),
  "typing_of_calls": (
    "from typing import List\ndef f(x: List[g()]):\n  return x"
  ),
  "name_after_a_digit": "def f(x):\n  return 1if x else 1or vars(x)",
  "name_in_a_text": "def f(x):\n  return f'{x:{vars(x)}}'",
  "name_in_wide_letters": "def f(x):\n  return \uff56\uff41\uff52\uff53(x)",
}
INPUTS = {
  "[1, 'a', {2: None}], y=-3": True,
  "deque([1]), Counter({'a': 1}), range(3), float('nan'), set()": True,
  "[i * math.pi for i in range(3)], (lambda x: x)": True,
  "__builtins__": False,
  "vars\\\n(__builtins__)": False,
  "vars #,\n(1)": False,
  "Counter": False,
  "math": False,
  "collections.abc": False,
}


@pytest.mark.parametrize("name", SHARED)
def test_honest_programs_share_a_process(name):
  assert independence.are_independent(SHARED[name], ["1", "[2], y=(3,)"])


@pytest.mark.parametrize("name", ALONE)
def test_programs_that_could_tell_have_a_process_for_each_call(name):
  assert not independence.are_independent(ALONE[name], ["1"])


@pytest.mark.parametrize("text", INPUTS)
def test_inputs_construct_values(text):
  assert independence.are_independent(RUN, [text]) is INPUTS[text]


def test_plain_programs_need_no_syntax_tree(monkeypatch):
  monkeypatch.delattr(independence.ast, "parse")
  assert independence.are_independent(SHARED["arithmetic"], ["1", "[2], y=3"])


def test_what_may_be_passed_on_cannot_be_changed():
  for module, names in independence._LIBRARY.items():
    for name, kind in names.items():
      value = getattr(importlib.import_module(module), name)
      if kind == independence._ANY and module != "__future__":
        with pytest.raises((TypeError, AttributeError)):
          value.leak = 1
