r"""Parses LaTeX or plain text into normalized nodes.

Spaces, fonts, bracket sizes and alternative spellings of a command are
normalized away: `\dfrac12` and `\frac{1}{2}` give the same nodes. Commands with
letters glued to them are split (`\cosx`), and functions may lack the backslash
(`2*sqrt(5)`). Parsing takes linear time.
"""

import dataclasses

from azr_jax.grading.mathematics import symbols
from azr_jax.grading.mathematics.nodes import (
  THOUSANDS,
  Node,
  Nodes,
  command,
  sign,
)
from azr_jax.grading.mathematics.tokens import TokenStream, UnreadableError

MAX_DEPTH = 24  # Nesting limit of braces and brackets.
_MATH, _TEXT, _UPRIGHT, _FONT = range(4)
_CONSTANTS = frozenset("ied")  # Symbols that are often set upright.


def read(text: str) -> Nodes:
  """Parses a text.

  Raises:
    UnreadableError: braces do not match or are nested too deep.
  """
  reader = _Reader(TokenStream(text))
  nodes = reader.nodes((), _MATH, 0)
  if reader.tokens.peek() is not None:
    raise UnreadableError("a closing brace has no opening brace")
  return nodes


class _Reader:
  """A recursive-descent parser. `depth` counts the enclosing brackets."""

  def __init__(self, tokens: TokenStream):
    self.tokens = tokens

  def nodes(self, closing: tuple[str, ...], mode: int, depth: int) -> Nodes:
    """Reads up to a token in `closing`, without consuming it, or to the end."""
    if depth > MAX_DEPTH:
      raise UnreadableError("too many nested braces")
    nodes: list[Node] = []
    while (token := self.tokens.peek()) is not None:
      if token in closing or token == "}":
        break
      if token == "(" and closing == (")",):
        self.tokens.take()
        nodes += [sign("("), *self._until(")", mode, depth), sign(")")]
        continue
      nodes += self._node(mode, depth)
    if closing and self.tokens.peek() not in closing:
      raise UnreadableError("a bracket is not closed")
    return _merged_thousands(nodes)

  def _until(self, closing: str, mode: int, depth: int) -> Nodes:
    nodes = self.nodes((closing,), mode, depth + 1)
    self.tokens.take()
    return nodes

  def _node(self, mode: int, depth: int) -> list[Node]:
    token, spaced = self.tokens.take()
    if token == "{":
      return self._group(spaced, mode, depth)
    if token == "$":
      return []
    if token[0] == "\\":
      return self._command(token[1:], spaced, mode, depth)
    if token[0].isdecimal() or (token[0] == "." and token[1:2].isdecimal()):
      return [Node("number", token, spaced=spaced)]
    if token.isascii() and token.isalpha():
      return self._letters(token, spaced, mode, depth)
    if token.startswith("..."):
      return [Node("command", "ldots", spaced=spaced)]
    if token in ("^", "_") and mode != _TEXT:
      return self._script(token, depth)
    return [Node("sign", symbols.SIGNS.get(token, token), spaced=spaced)]

  def _group(self, spaced: bool, mode: int, depth: int) -> list[Node]:
    if self.tokens.peek() == "," and self.tokens.peek(1) == "}":
      self.tokens.skip(2)
      return [sign(THOUSANDS)]
    inner = _chosen(self._until("}", mode, depth))
    if len(inner) == 1:
      return [dataclasses.replace(inner[0], spaced=spaced or inner[0].spaced)]
    return [Node("group", args=(inner,), spaced=spaced)] if inner else []

  def _letters(
    self, run: str, spaced: bool, mode: int, depth: int
  ) -> list[Node]:
    if run in ("and", "or"):
      return [Node("sign", run, spaced=spaced)]
    if mode == _TEXT or (run == "to" and spaced):
      return [Node("word", run, spaced=spaced)]
    if run in symbols.FUNCTIONS or run == "pi":
      return [Node("command", run, spaced=spaced)]
    if run in symbols.BRACKETED and self.tokens.peek() == "(":
      return self._command(run, spaced, mode, depth)
    if mode != _MATH and (
      len(run) > 1 or (mode == _UPRIGHT and run not in _CONSTANTS)
    ):
      return [Node("word", run, spaced=spaced)]
    return [
      Node("letter", letter, spaced=spaced and index == 0)
      for index, letter in enumerate(run)
    ]

  def _script(self, token: str, depth: int) -> list[Node]:
    argument = self._whole_argument(depth)
    if token == "_":
      return [Node("sub", args=(argument,))]
    if argument == (command("circ"),):
      return [Node("word", "degrees", spaced=True)]
    if argument and all(node == sign("'") for node in argument):
      return list(argument)
    return [Node("sup", args=(argument,))]

  def _argument(self, depth: int) -> Nodes:
    """Reads the argument of a command: `{...}`, or a single digit or letter."""
    if depth > MAX_DEPTH:
      raise UnreadableError("too many nested commands")
    token, _ = self.tokens.take()
    if token == "{":
      return self._until("}", _MATH, depth)
    if token == "}":
      raise UnreadableError("an argument is missing")
    if token[0].isalnum():
      self.tokens.put_back(token[1:])
      kind = "number" if token[0].isdecimal() else "letter"
      return (Node(kind, token[0]),)
    self.tokens.put_back(token)
    return tuple(self._node(_MATH, depth + 1))

  def _whole_argument(self, depth: int) -> Nodes:
    """Reads an argument that may also be a whole number or `(...)`."""
    token = self.tokens.peek() or ""
    if token == "(":
      self.tokens.take()
      return self._until(")", _MATH, depth)
    if token in ("-", "+"):
      self.tokens.take()
      if depth > MAX_DEPTH:
        raise UnreadableError("too many signs")
      return (sign(token), *self._whole_argument(depth + 1))
    if token[:1].isdecimal():
      return tuple(self._node(_MATH, depth))
    return self._argument(depth)

  def _command(
    self, name: str, spaced: bool, mode: int, depth: int
  ) -> list[Node]:
    name = self._known(name)
    name = symbols.ALIASES.get(name, name)
    if name in symbols.SIGNS:
      return [Node("sign", symbols.SIGNS[name], spaced=spaced)]
    if name in symbols.LAYOUT:
      if name in ("left", "right") and self.tokens.peek() == ".":
        self.tokens.take()
      return []
    if name in symbols.TEXT or name in symbols.FONTS:
      return self._text(name, spaced, depth)
    if name in symbols.DROPPED:
      self._argument(depth)
      return []
    if name == "begin":
      return [self._matrix(depth)]
    if name == "degree":
      return [Node("word", "degrees", spaced=True)]
    if name == "not" and self.tokens.peek() == "=":
      self.tokens.take()
      return [Node("sign", "!=", spaced=spaced)]
    return [Node("command", name, self._arguments(name, depth), spaced)]

  def _arguments(self, name: str, depth: int) -> tuple[Nodes, ...]:
    args = []
    if name == "sqrt" and self.tokens.peek() == "[":
      self.tokens.take()
      args.append(self._until("]", _MATH, depth))
    if name == "sqrt" and self.tokens.peek() == "(":
      return (*args, self._whole_argument(depth))
    count = symbols.ARGUMENTS.get(name, 0)
    return (*args, *(self._argument(depth) for _ in range(count)))

  def _known(self, name: str) -> str:
    """Strips letters glued to a command's name and puts them back."""
    if not name.isalpha() or name in symbols.KNOWN:
      return name
    for length in range(min(len(name), symbols.LONGEST_NAME), 1, -1):
      if name[:length] in symbols.KNOWN - symbols.TEXT - symbols.FONTS:
        self.tokens.put_back(name[length:])
        return name[:length]
    return name

  def _text(self, name: str, spaced: bool, depth: int) -> list[Node]:
    if self.tokens.peek() != "{":
      return []
    mode = _TEXT if name in symbols.TEXT else _FONT
    if name in ("mathrm", "operatorname"):
      mode = _UPRIGHT
    self.tokens.take()
    inner = self._until("}", mode, depth)
    if not inner:
      return []
    first = dataclasses.replace(inner[0], spaced=spaced or inner[0].spaced)
    return [first, *inner[1:]]

  def _matrix(self, depth: int) -> Node:
    name = self._environment()
    if name == "array":
      self._argument(depth)
    rows = []
    while True:
      rows.append(self.nodes(("\\\\", "\\end"), _MATH, depth + 1))
      if self.tokens.take()[0] == "\\end":
        break
      if self.tokens.peek() == "[":  # Row spacing, as in `\\[2pt]`.
        self.tokens.take()
        self._until("]", _MATH, depth)
    if self._environment() != name:
      raise UnreadableError("an environment is not closed")
    rows = rows if rows[-1] else rows[:-1]
    if not rows:
      raise UnreadableError("an environment is empty")
    return Node("matrix", name, tuple(rows))

  def _environment(self) -> str:
    opening, name, closing = [self.tokens.take()[0] for _ in range(3)]
    if opening != "{" or closing != "}":
      raise UnreadableError("an environment has no name")
    return name


def _chosen(nodes: Nodes) -> Nodes:
  r"""Rewrites `n \choose k` as a binomial coefficient."""
  choose = command("choose")
  if nodes.count(choose) != 1:
    return nodes
  index = nodes.index(choose)
  return (command("binom", nodes[:index], nodes[index + 1 :]),)


def _merged_thousands(nodes: list[Node]) -> Nodes:
  """Joins digit groups separated only by spaces or thousands separators."""
  merged: list[Node] = []
  index = 0
  while index < len(nodes):
    digits, after = _thousands(nodes, index)
    joined = Node("number", digits, spaced=nodes[index].spaced)
    merged.append(joined if after > index + 1 else nodes[index])
    index = after
  return tuple(merged)


def _thousands(nodes: list[Node], start: int) -> tuple[str, int]:
  """Joins groups of three digits from `start`.

  Returns:
    The digits and the index after them.
  """
  digits, index = nodes[start].text, start + 1
  if nodes[start].kind != "number" or not digits.isdecimal() or len(digits) > 3:
    return digits, index
  while index < len(nodes):
    is_marked = nodes[index] == sign(THOUSANDS)
    following = nodes[index + is_marked : index + is_marked + 1]
    if not following or following[0].kind != "number":
      break
    whole, point, _ = following[0].text.partition(".")
    if len(whole) != 3 or not whole.isdecimal():
      # Groups of other lengths do not form one number with spaces.
      return (digits, index) if is_marked else (nodes[start].text, start + 1)
    digits, index = digits + following[0].text, index + is_marked + 1
    if point:
      break
  return digits, index
