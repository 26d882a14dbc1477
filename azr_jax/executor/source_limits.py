"""Limits on untrusted Python text, so that parsing it is safe and fast.

| limit | without it |
| --- | --- |
| `MAX_CHARS` characters | unbounded memory for the syntax tree |
| `MAX_DEPTH` open brackets, `MAX_SIGN_RUN` signs in a row | deep C recursion |
| `MAX_MARKS` combining marks in a row | 12 s for a name of 64,000 characters |
| `MAX_DOTS` dots in a dotted name | 1.4 s for `import a.a.a...` of 64,000 |
| `MAX_FIELD_STEPS` in the fields of f-strings | 17 s for 80,000 fields |

Within these limits, CPython's parser takes linear time on every text in
`tests/complexity/readings.py`. The times above were measured on CPython 3.11.
"""

import itertools
import re
import unicodedata

MAX_CHARS = 256 * 1024
# Canonical text needs 129 open brackets: two at each of 64 levels, and one for
# a number such as `float('nan')`. A call around it makes 130. CPython's
# tokenizer allows 200.
MAX_DEPTH = 130
MAX_SIGN_RUN = 64
# CPython normalizes each name and sorts its runs of marks in quadratic time.
# Unicode's Stream-Safe Text Format (UAX #15) allows 30.
MAX_MARKS = 30
MAX_DOTS = 100
# CPython searches an f-string from its start for each of its fields, so the
# number of steps is opening braces times characters.
MAX_FIELD_STEPS = 1 << 26
# A string, closed or not. It never fails after a quote, so the scan is linear.
_STRING_PATTERN = (
  r"""'''(?:[^'\\]++|\\.|'(?!''))*(?:''')?"""
  r'''|"""(?:[^"\\]++|\\.|"(?!""))*(?:""")?'''
  r"""|'(?:[^'\\\n]++|\\.)*'?"""
  r"""|"(?:[^"\\\n]++|\\.)*"?"""
)
STRING = re.compile(_STRING_PATTERN, re.DOTALL)
# A comment, or a string with its prefix, such as `rb`.
_NOT_CODE = re.compile(
  rf"#[^\n]*+|(?P<prefix>\b[A-Za-z]{{1,2}})?(?:{_STRING_PATTERN})", re.DOTALL
)
# A bracket, a sign, or other text, which interrupts a run of signs.
_SYMBOL = re.compile(r"[(\[{)\]}+\-~]|[^()\[\]{}+\-~\s]+")
_DOTTED = re.compile(r"(?:\.[\s\\]*+\w++[\s\\]*+)+")
_F_PREFIX = re.compile(r"[fF][rR]?['\"]")


class ParseError(ValueError):
  """The text is too large, too deep, or not Python of the allowed kind."""


def check(text: str) -> None:
  """Checks that a text is within the limits.

  Raises:
    ParseError: the text exceeds a limit; the message names it.
  """
  if len(text) > MAX_CHARS:
    raise ParseError(f"{len(text)} characters; expected at most {MAX_CHARS}")
  if not text.isascii() and _has_long_mark_run(text):
    raise ParseError(f"more than {MAX_MARKS} combining marks in a row")
  has_fields = _F_PREFIX.search(text) is not None
  has_imports = "import" in text or "from" in text
  # Most texts are within all limits even when strings and comments count.
  if (
    _is_shallow(text)
    and has_imports * text.count(".") <= MAX_DOTS
    and has_fields * text.count("{") * len(text) <= MAX_FIELD_STEPS
  ):
    return
  # CPython accepts all three line endings.
  text = text.replace("\r\n", "\n").replace("\r", "\n")
  code = _NOT_CODE.sub("''", text)
  if not _is_shallow(code):
    raise ParseError("too many open brackets or signs in a row")
  if has_imports and _has_long_name(code):
    raise ParseError(f"more than {MAX_DOTS} dots in a name")
  if has_fields and _field_steps(text) > MAX_FIELD_STEPS:
    raise ParseError("too many fields in f-strings")


def _is_shallow(text: str) -> bool:
  depth = run = 0
  for symbol in _SYMBOL.findall(text):
    if symbol in "+-~":
      run += 1
      if run > MAX_SIGN_RUN:
        return False
      continue
    run = 0
    if symbol in "([{":
      depth += 1
      if depth > MAX_DEPTH:
        return False
    elif symbol in ")]}":
      depth -= 1
  return True


def _has_long_name(code: str) -> bool:
  return any(m[0].count(".") > MAX_DOTS for m in _DOTTED.finditer(code))


def _has_long_mark_run(text: str) -> bool:
  marks = {letter for letter in set(text) if _is_mark(letter)}
  runs = itertools.groupby(text, marks.__contains__) if marks else ()
  return any(
    is_mark and sum(1 for _ in run) > MAX_MARKS for is_mark, run in runs
  )


def _is_mark(letter: str) -> bool:
  """Returns whether normalization may reorder a letter with earlier ones."""
  first = unicodedata.normalize("NFKD", letter)[0]
  return unicodedata.combining(first) != 0


def _field_steps(text: str) -> int:
  return sum(
    match[0].count("{") * len(match[0])
    for match in _NOT_CODE.finditer(text)
    if "f" in (match["prefix"] or "").casefold()
  )
