"""The expression language and its evaluation."""

import pytest

from azr_jax.grading import expressions

ALLOWED = [
  "1 + 1",
  "[0] * 3",
  "2 ** 10",
  "-True",
  "1 if 2 > 1 else 0",
  "'a b'.split()",
  "'ab'[::-1]",
  "f'{1 + 1:>4}'",
  "'{:.2f}'.format(1 / 3)",
  "[*range(3), {**{1: 2}}]",
  "[x * y for x in range(3) if x for y in range(x)]",
  "{k: v for k, v in zip('ab', [1, 2])}",
  "sum(x for x in range(3))",
  "sorted(['b', 'a'], key=lambda s, n=1: s * n)",
  "functools.reduce(lambda a, b: a * b, [1, 2, 3])",
  "dict.fromkeys('ab', 0)",
  "math.pi",
  "string.ascii_lowercase[:3]",
  "[*itertools.permutations([1, 2])]",
  "collections.Counter('aab')",
  "deque([1], 3)",
  "[f for f in range(2)]",
  "(lambda exec: exec)(1)",
  "(lambda a, /, *b, c=0, **d: [a, b, c, d])(1)",
  "[(lambda: x + y)() for x in [1] if x for y in [x]]",
  "bytes([1, 2])",
]
REFUSED = [
  "x",
  "f(1)",
  "f",
  "gold_output",
  "(x := 1)",
  "[y := 1, y]",
  "[f for x in [1]] + [f for f in [1]]",
  "[x for x in x]",
  "(lambda x=x: x)()",
  "(lambda: eval)()('1')",
  "[eval for eval in [1]] and eval('1')",
  "(lambda x=(lambda eval: 0): eval('1'))()",
  "(lambda *x, y=(lambda eval: 0): eval('1'))()",
  "[eval for x in [lambda eval: 0]]",
  "[(lambda: x) for y in [1] if x for x in [1]]",
  "{x: y for x in [1]}",
  "eval('1')",
  "exec('1')",
  "compile('1', '', 'eval')",
  "globals()",
  "locals()",
  "vars()",
  "open('a')",
  "print(1)",
  "getattr(1, 'real')",
  "type('E', (), {})()",
  "object()",
  "__import__('os').getpid()",
  "__builtins__",
  "().__class__",
  "(1).__add__(1)",
  "(i for i in ()).gi_frame.f_back",
  "(lambda: 0).__globals__",
  "(lambda: 0).f_globals",
  "Fraction.mro()[1].register(str)",
  "collections.sys",
  "collections.abc",
  "collections.namedtuple('P', 'x')",
  "string.Formatter()",
  "functools.partial(print)",
  "decimal.getcontext()",
  "math.__loader__",
  "math",
  "[math]",
  "os.getpid()",
  "[0 for ().a in [1]]",
  "[0 for {}[0] in [1]]",
  "(yield)",
  "(await 1)",
  "...; 1",
  "1\n2",
  "1 +" * 3000 + "1",
  "1+" * 2000 + "1",
  "[" * 500 + "]" * 500,
  "'" + "a" * 5000 + "'",
  "",
]


@pytest.mark.parametrize("text", ALLOWED)
def test_the_language_has(text):
  assert expressions.is_value(text)
  assert expressions.are_arguments(text)
  assert expressions.are_arguments(f"{text}, x={text}, *[{text}]")


@pytest.mark.parametrize("text", REFUSED)
def test_the_language_has_not(text):
  assert not expressions.is_value(text)
  if text:
    assert not expressions.are_arguments(text)
    assert not expressions.are_arguments(f"1, x=[{text}]")


@pytest.mark.parametrize(
  "text", ["", "*[1]", "**dict(a=1)", "1, 2", "x=1", "[1 # one\n]"]
)
def test_arguments(text):
  assert expressions.are_arguments(text)


@pytest.mark.parametrize("text", ["1) or (2", "1)(2", ")", "1).real(", "y:=1"])
def test_no_arguments_of_one_call(text):
  assert not expressions.are_arguments(text)


@pytest.mark.parametrize(
  "text, value",
  [
    ("1, 1 + 1", "(1, 2)"),
    (" 1 + 1  # two ", "2"),
    ("dict(a=1)", "{'a': 1}"),
    ("defaultdict(int, a=1)", "{'a': 1}"),
    ("float('inf') - 1", "float('inf')"),
    ("-0.0 * 1", "-0.0"),
    ("{2, 1} | {3}", "{1, 2, 3}"),
    ("'é' + 'a'", "'\\xe9a'"),
    ("Decimal(1) / Decimal(4)", "Decimal('0.25')"),
    ("lambda: 1", None),
    ("range(3)", None),
    ("1 / 0", None),
    ("list(set('abcdefgh'))", None),
    ("10 ** 10 ** 10", None),
    ("'a' * 10 ** 12", None),
  ],
)
def test_values(executor, text, value):
  assert expressions.is_value(text)
  result = expressions.submit_value(executor, text).result(60)
  assert result.outputs == (value,)


def test_arguments_are_read_in_one_job(executor):
  before = executor.counters()["programs"]
  texts = ("1 + 1, x=[0] * 2", "*[]", "'a, b=' * 1, (1,)", "{'x': (2 + 2,)}")
  result = expressions.submit_arguments(executor, texts).result(60)
  assert result.status == "ok" and result.outputs == (
    "2, x=[0, 0]",
    "",
    "'a, b=', (1,)",
    "{'x': (4,)}",
  )
  assert executor.counters()["programs"] == before + 1
  result = expressions.submit_arguments(executor, ["**{'if': 1}"]).result(60)
  assert (result.status, result.outputs) == ("error", (None,))
