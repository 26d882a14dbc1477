"""Adversarial texts of any length, such as a model may write.

Each entry maps a length to a text of about as many characters. `COMMON` is for
all readers, `PIECES` for those that look for no marks, `MATHEMATICS` for
formulas. `PYTHON`, `SYNTAX` and `VALUES` are for readers that parse Python.
"""

from collections.abc import Callable, Mapping

Text = Callable[[int], str]
Texts = Mapping[str, Text]

# Opening and closing marks of parts of a response.
_MARKS = {
  "answer": ("<answer>", "</answer>"),
  "think": ("<think>", "</think>"),
  "chevrons": ("<<<", ">>>"),
  "fence": ("```\n", "\n```"),
  "python": ("```python\n", "\n```"),
  "python in a line": ("x```python ", "``` "),
  "tilde fence": ("~~~\n", "\n~~~"),
  "box": ("\\boxed{", "}"),
  "LaTeX text": ("\\text{", "}"),
  "fraction": ("\\frac{1}{", "}"),
  "round": ("(", ")"),
  "square": ("[", "]"),
  "curly": ("{", "}"),
}
# Texts that repetition may make slow to parse.
_PIECES = {
  "digits": "1",
  "digits and points": "1.",
  "digits and spaces": "1 ",
  "digits and commas": "1,",
  "thousands": ",111",
  "points": "0,0;1,1;",
  "letters": "a",
  "words": "a ",
  "wide letters": "\u00e9",
  "surrogates": "\ud800",
  "combining marks": "\u0315\u0300",
  "zero bytes": "\0",
  "spaces": " ",
  "newlines": "\n",
  "carriage returns": "\r",
  "lines": "x\n",
  "letters alone": "A\n",
  "backticks": "`",
  "tildes": "~",
  "lines of backticks": "`" * 200 + "\n",
  "openings": "```x\n",
  "indented fences": " - ```python  \n\t```\n",
  "inline fences": "```python x``` ",
  "backslashes": "\\",
  "dollars": "$",
  "quotes": "'",
  "signs": "-",
  "stars": "*",
  "powers": "9**",
  "equations": "x=",
  "answers": "answer ",
  "assertions": "assert ",
  "imports": "import a.",
  "steps": "step 1: (1, [0])\n",
  "moves": "move A from stack1 to stack2\n",
  "agents": '{"Agent[0.5, 0.5]": "move(box_red, target_red)"}',
}
# A prefix, a character to repeat, and a suffix that makes the text malformed.
_MALFORMED = {
  "digits": ("", "1", "="),
  "decimals": ("x + 3.", "3", "="),
  "digits of a number": ("1", " 1", "x"),
  "answer and spaces": ("answer", " ", "\n"),
  "answer and newlines": ("answer is", "\n", ""),
  "answer and blank lines": ("The answer:", " \n", "#"),
  "newlines before a word": ("", "\n", "word"),
  "count and newlines": ("count:1", "\n", "x"),
  "box and spaces": ("\\boxed", " ", "x"),
  "fence and blanks": ("```python", " ", "x"),
  "puzzle": ("[1", " 1", "x"),
  "target": ("=", " ", "24 x"),
  "frame": ("trick ", "a ", "human"),
}


def repeated(piece: str, length: int) -> str:
  """Returns whole repetitions of a piece, of at most `length` characters."""
  return piece * (length // len(piece))


PIECES: Texts = {
  name: (lambda n, p=piece: repeated(p, n)) for name, piece in _PIECES.items()
}


def _common() -> dict[str, Text]:
  texts: dict[str, Text] = {}
  for name, (opening, closing) in _MARKS.items():
    pair = len(opening) + len(closing)
    texts |= {
      f"{name}, opened again and again": (lambda n, o=opening: repeated(o, n)),
      f"{name}, never closed": lambda n, o=opening: o + repeated("a", n),
      f"{name}, nested": lambda n, o=opening, c=closing, p=pair: (
        o * (n // p) + c * (n // p)
      ),
      f"{name}, in pairs": lambda n, o=opening, c=closing: repeated(o + c, n),
      f"{name}, closed first": lambda n, o=opening, c=closing, p=pair: (
        c * (n // p) + o * (n // p)
      ),
    }
  texts |= PIECES
  texts["fences that grow"] = lambda n: "".join(
    f"{'`' * (3 + i)}\n" for i in range(int((2 * n) ** 0.5) - 3)
  )
  texts["indented closings before a fence"] = lambda n: (
    repeated("x ``` y\n ```\n", n - 10) + "```python\n"
  )
  for name, (start, piece, end) in _MALFORMED.items():
    texts[f"{name}, malformed"] = lambda n, s=start, p=piece, e=end: (
      s + repeated(p, n - len(s + e)) + e
    )
  return texts


# Tool calls in the formats of chat models.
_CALL = '{"name": "a", "arguments": {}}'
CALLS: Texts = {
  "calls": lambda n: repeated(f"<tool_call>{_CALL}</tool_call>", n),
  "calls, never closed": lambda n: repeated("<tool_call>", n),
  "calls, listed": lambda n: f"[TOOL_CALLS] [{repeated(_CALL + ',', n)}",
  "lists of calls": lambda n: repeated("[TOOL_CALLS] [", n),
  "calls, fenced": lambda n: repeated(f"```json\n{_CALL}\n```\n", n),
  "fences of calls, never closed": lambda n: repeated("```json\n", n),
  "call with nested arguments": lambda n: (
    '{"name": "a", "arguments": ' + '{"a": ' * (n // 7) + "1" + "}" * (n // 7)
  ),
  "call with escapes": lambda n: '{"name": "' + repeated("\\u00e9", n) + '"}',
}
# A prefix, the piece to repeat, and a suffix.
_PYTHON = {
  "fields": ("f'", "{1}", "'"),
  "fields in lines": ("f'''", "{1}\n", "'''"),
  "nested fields": ("f'", "{1:{1}}", "'"),
  "f-strings": ("(", "f'{1}' ", ")"),
  "strings": ("(", "'a' ", ")"),
  "open string": ("'''", "\\'", ""),
  "escapes": ("'", "\\d", "'"),
  "named letters": ("'", "\\N{DIGIT ONE}", "'"),
  "a name's marks": ("a", "\u0315\u0300", ""),
  "a name's letters": ("a", "\u00e9", ""),
  "a name's ligatures": ("", "\ufb01", ""),
  "imported name": ("import a", ".a", ""),
  "imported names": ("import a", ",a", ""),
  "import from": ("from ", ".", " import a"),
  "attributes": ("a", ".a", ""),
  "sum": ("1", "+1", ""),
  "power": ("1", "**1", ""),
  "comparison": ("1", "<1", ""),
  "negations": ("", "not ", "1"),
  "lambdas": ("", "lambda:", "1"),
  "conditions": ("", "1 if 1 else ", "1"),
  "calls": ("a", "()", ""),
  "subscripts": ("a", "[0]", ""),
  "list": ("[", "1,", "]"),
  "list, malformed": ("[", "1,", "1 1]"),
  "list, open": ("[", "1,", ""),
  "dict": ("{", "1:1,", "}"),
  "dict, malformed": ("{", "1:1,", "1 1}"),
  "arguments": ("f(", "a=1,", "a=1)"),
  "arguments, malformed": ("f(", "a=1,", "1 1)"),
  "star list": ("[", "*a,", "]"),
  "walrus": ("", "(a:=1),", "1"),
  "slices": ("a[", "1:1,", "1]"),
  "generators": ("[1 ", "for a in b ", "]"),
  "filters": ("[1 for a in b ", "if 1 ", "]"),
  "literals with warnings": ("[", "1 is 1,", "]"),
  "assignments": ("", "a=", "1"),
  "statements": ("", "a;", "a"),
  "decorators": ("", "@a\n", "def f(): 1"),
  "branches": ("if 1: 1\n", "elif 1: 1\n", ""),
  "handlers": ("try: 1\n", "except a: 1\n", ""),
  "with": ("with (", "a,", "a): 1"),
  "with, malformed": ("with (", "a,", "a)"),
  "match": ("match a:\n case ", "1|", "1: 1"),
  "functions": ("", "def f(x): return x\n", ""),
  "comments": ("", "#'''\n", ""),
  "continued lines": ("(", "\\\n", "1)"),
  "malformed names": ("", "a ", ""),
  "indented lines": ("", "if 1:\n\t1\n", "if 1:\n\t1\n        1"),
}
_NESTED = {
  "nested lists": ("[", "]"),
  "nested sets": ("{", "}"),
  "nested dicts": ("{1:", "}"),
  "nested calls": ("f(", ")"),
  "nested subscripts": ("a[", "]"),
  "nested tuples": ("(a,", ")"),
  "nested defaults": ("lambda x=(", ")"),
  "nested generators": ("[a for a in ", "]"),
}
# Slightly below the maximum nesting of brackets.
_DEPTH = 120


def _python() -> dict[str, Text]:
  texts: dict[str, Text] = {}
  for name, (start, piece, end) in _PYTHON.items():
    texts[name] = lambda n, s=start, p=piece, e=end: (
      s + repeated(p, n - len(s + e)) + e
    )
  for name, (opening, closing) in _NESTED.items():
    for inside in ("1", "1 1"):
      once = opening * _DEPTH + inside + closing * _DEPTH + ","
      texts[f"{name} of {inside}"] = lambda n, p=once: (
        "[" + repeated(p, max(n, len(p))) + "]"
      )
  return texts


_MATHEMATICS = (
  r"\frac{1}{2}|\frac12|\sqrt|\sqrt[3]{2}|\text{ cm}|\pi|\infty|\pm1|x|"
  r"\cdot10^{9}|\times|\left(|\right)|\{1,2\}|\cup(0,1)|\le x|and |=1=|"
  r"0.\overline{3}|1_{2}|x_{1}=1,|^{2}|^\circ|50\%|\$5|(1,2),|[1,2)|1:2:|"
  r"a or b |one hundred |1 1/2 |3 m/s^2 |2+3i|1e9|\mathrm{m}|\ |\!|"
  r"\begin{pmatrix}1&2\\\end{pmatrix}"
).split("|")


def _mathematics() -> dict[str, Text]:
  texts: dict[str, Text] = {}
  for piece in _MATHEMATICS:
    texts[f"{piece}, repeated"] = lambda n, p=piece: repeated(p, n)
    texts[f"{piece}, after digits"] = lambda n, p=piece: (
      repeated("1", n // 2) + repeated(p, n // 2)
    )
  return texts


_MODULUS = 2**61 - 1  # Python's hash of its multiples is 0.


def _numbers(write: str, around: str) -> Text:
  """Returns collections of numbers that all have the same hash.

  Args:
    write: format of a number.
    around: format of the whole collection.
  """

  def text(length: int) -> str:
    one = len(write.format(1000 * _MODULUS)) + 1
    count = max(1, length // one)
    listed = ",".join(write.format(i * _MODULUS) for i in range(1, count))
    return around.format(listed)

  return text


COMMON: Texts = _common()
MATHEMATICS: Texts = _mathematics()
PYTHON: Texts = _python()
# One text of `PYTHON` for each kind of work on a syntax tree.
SYNTAX: Texts = {
  name: PYTHON[name]
  for name in (
    "fields",
    "strings",
    "a name's marks",
    "imported name",
    "attributes",
    "calls",
    "list",
    "arguments",
    "statements",
    "branches",
    "nested lists of 1",
    "nested defaults of 1",
  )
}
VALUES: Texts = {
  "set of ints of one hash": _numbers("{}", "{{{}}}"),
  "dict of ints of one hash": _numbers("{}:0", "{{{}}}"),
  "Counter of ints of one hash": _numbers("{}:1", "Counter({{{}}})"),
  "OrderedDict of ints of one hash": _numbers("({},0)", "OrderedDict([{}])"),
  "set of tuples of one hash": _numbers("({},1)", "{{{}}}"),
  "set of Decimals of one hash": _numbers("Decimal('{}')", "{{{}}}"),
  "set of Fractions of one hash": _numbers("Fraction({},2)", "{{{}}}"),
  "long int": lambda n: "0x" + "f" * n,
  "set of long ints": lambda n: f"{{0x{'f' * (n // 2)},0x{'e' * (n // 2)}}}",
  "ints of 4300 digits": lambda n: (
    "[" + repeated("7" * 4300 + ",", max(n, 4301)) + "]"
  ),
  "long float": lambda n: "1." + "7" * n + "e-300",
  "long Decimal": lambda n: "{Decimal('" + "7" * n + "')}",
  "long Decimal, of an int": lambda n: f"Decimal(0x{'f' * n})",
  "long Fraction": lambda n: (
    f"Fraction(0x{'f1' * (n // 4)},0x{'3a7' * (n // 6)})"
  ),
  "signed numbers": lambda n: "[" + repeated("-+-1,", n) + "]",
}
