"""The names that argument texts may use besides Python's builtins.

An argument text means the same value for every program: it is evaluated with
these names and without the program's. They include every constructor that
occurs in a canonical text (`canonical.py`), so a value can be passed to a
program that does not import its type. This module runs in the zygote's
children, so it imports only the standard library.
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
