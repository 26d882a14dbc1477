"""Tests of canonical texts of values."""

import pytest

VALUES = {
  "True": "True",
  "-7": "-7",
  "1e22": "1e+22",
  "float('inf')": "float('inf')",
  "-float('inf')": "float('-inf')",
  "float('nan')": "float('nan')",
  "1 - 2j": "complex(1.0, -2.0)",
  "'a\\n\\u00e9\\''": '"a\\n\\xe9\'"',
  "b'\\x00'": "b'\\x00'",
  "[1, (2,), ()]": "[1, (2,), ()]",
  "{3, 1, 2}": "{1, 2, 3}",
  "set()": "set()",
  "frozenset([2, 1])": "frozenset({1, 2})",
  "frozenset()": "frozenset()",
  "{'b': 1, 'a': {2: None}}": "{'b': 1, 'a': {2: None}}",
  "__import__('collections').Counter('aab')": "Counter({'a': 2, 'b': 1})",
  "__import__('collections').deque([1, 2], 5)": "deque([1, 2])",
  "__import__('collections').OrderedDict(a=1)": "OrderedDict([('a', 1)])",
  "__import__('fractions').Fraction(2, 4)": "Fraction(1, 2)",
  "__import__('decimal').Decimal('1.50')": "Decimal('1.50')",
}


@pytest.mark.parametrize("expression, text", VALUES.items())
def test_text(run, expression, text):
  assert run("def f(x):\n  return x", expression).outputs == (text,)


@pytest.mark.parametrize(
  "code",
  [
    "class L(list): pass\ndef f():\n  return L()",
    "class I(int): pass\ndef f():\n  return [I(1)]",
    "def f():\n  return object()",
    "def f():\n  return (i for i in [])",
    "def f():\n  return range(3)",
    "def f():\n  a = []\n  a.append(a)\n  return a",
    "def f():\n  a = []\n  for _ in range(64): a = [a]\n  return a",
    "def f():\n  a = [1]\n  for _ in range(60): a = [a, a]\n  return a",
  ],
)
def test_no_text(run, code):
  result = run(code)
  assert (result.status, result.error) == ("error", "Unserializable")


def test_as_deep_as_allowed(run):
  code = "def f():\n  a = []\n  for _ in range(63): a = [a]\n  return a"
  assert run(code).outputs == ("[" * 64 + "]" * 64,)
