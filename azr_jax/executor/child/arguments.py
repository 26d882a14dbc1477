"""The names that argument texts may use besides Python's builtins.

An argument text is the same value whatever the program: it is evaluated with
these names and without the program's. They include every constructor of a
canonical text (`canonical.py`), so that a value can be an argument of a program
that does not import its type. The module runs in the zygote's children, so it
imports the standard library only.
"""

import cmath
import collections
import decimal
import fractions
import functools
import itertools
import math
import string

CONSTRUCTORS = {
  "Counter": collections.Counter,
  "Decimal": decimal.Decimal,
  "Fraction": fractions.Fraction,
  "OrderedDict": collections.OrderedDict,
  "defaultdict": collections.defaultdict,
  "deque": collections.deque,
}
MODULES = {
  "cmath": cmath,
  "collections": collections,
  "decimal": decimal,
  "fractions": fractions,
  "functools": functools,
  "itertools": itertools,
  "math": math,
  "string": string,
}
NAMES = {**CONSTRUCTORS, **MODULES}
