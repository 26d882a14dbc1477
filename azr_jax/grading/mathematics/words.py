r"""Reads words, labels of figures, and multiple-choice letters.

Two or more letters on their own are a word or a label (`AB`, `\triangle ABC`),
never a product. They equal only the same letters in the same order.

| reference | correct | wrong |
| --- | --- | --- |
| `\text{Evelyn}`, `Walter` | any case, font and spaces | `teWral` |
| `ellipse` | `an ellipse` | |
| `ABC`, `AB`: up to 4 capitals or 2 letters | the same case | `abc`, `ACB` |
| `\triangle ABC`, `\angle A` | without the mark | another mark |
| `C`, `(C)`, `(C) 12` | `(C)`, `C.`, `C) 12`, `\text{Option C}` | `(c)`, `c` |

A reference with letter and value (`(D) 1`) also accepts the value alone.
"""

import dataclasses

from azr_jax.grading.mathematics import parts
from azr_jax.grading.mathematics.nodes import Node, Nodes, command, sign

CHOICES = "ABCDEFGHIJ"
_MARKS = ("angle", "triangle", "odot")
_ACCENTS = ("overline", "vec", "hat")
_ARTICLES = ("a", "an", "the")
_INSIDE = frozenset(("-", ".", "'", '"'))
_LABEL_LETTERS = 4
_NO_SOLUTION = frozenset(
  "nosolution nosolutions norealsolution norealsolutions emptyset".split()
)
_REALS = frozenset("allreals allrealnumbers allrealvalues".split())
_PREAMBLE = frozenset("the final answer it is so equals".split())
_CHOICE_WORDS = frozenset(("option", "choice", "answer"))


@dataclasses.dataclass(frozen=True)
class Words:
  """A word, a phrase or a label.

  Attributes:
    letters: the letters, without spaces.
    mark: the name of the symbol before a label, or "".
  """

  letters: str
  mark: str = ""

  def same(self, other: "Words") -> bool:
    """Returns whether the letters are the same and no marks conflict."""
    if self.mark and other.mark and self.mark != other.mark:
      return False
    if self._is_label():
      return self.letters == other.letters
    return self.letters.casefold() == other.letters.casefold()

  def _is_label(self) -> bool:
    if self.letters.casefold() == "no":
      return False
    count = len(self.letters)
    return count <= 2 or (self.letters.isupper() and count <= _LABEL_LETTERS)


@dataclasses.dataclass(frozen=True)
class Choice:
  """A multiple-choice letter.

  Attributes:
    letter: the capital letter.
    value: the nodes after the letter, maybe empty.
  """

  letter: str
  value: Nodes


def read(nodes: Nodes, min_letters: int = 2) -> Words | None:
  """Reads nodes as a word or label, or returns None.

  Args:
    nodes: the nodes to read.
    min_letters: the minimum number of letters, unless a mark precedes them.
  """
  mark, nodes = _mark(nodes)
  runs = _runs(nodes)
  if runs is None:
    return None
  if len(runs) > 1 and runs[0].casefold() in _ARTICLES and len(runs[1]) > 2:
    runs = runs[1:]
  letters = "".join(runs)
  return Words(letters, mark) if len(letters) >= min_letters or mark else None


def is_no_solution(nodes: Nodes) -> bool:
  r"""Returns whether nodes are `\emptyset`, `\{\}` or "no solution"."""
  if nodes == (command("emptyset"),):
    return True
  if nodes == (sign("{"), sign("}")):
    return True
  words = read(nodes)
  return words is not None and words.letters.casefold() in _NO_SOLUTION


def is_all_reals(nodes: Nodes) -> bool:
  """Returns whether nodes say "all real numbers"."""
  words = read(nodes)
  return words is not None and words.letters.casefold() in _REALS


def choice(nodes: Nodes) -> Choice | None:
  """Reads the choice at the start of nodes, or returns None.

  A bracket, full stop or colon must separate the letter from the nodes after
  it, which must not name another choice.
  """
  runs = _runs(nodes)
  if runs and runs[0].casefold() in _CHOICE_WORDS:
    length = len(runs[0]) if nodes[0].kind == "letter" else 1
    nodes = nodes[length:]
  is_open = nodes[:1] == (sign("("),)
  nodes = nodes[is_open:]
  if not nodes or not _is_capital(nodes[0]):
    return None
  letter, rest = nodes[0].text, nodes[1:]
  if is_open and rest[:1] != (sign(")"),):
    return None
  is_set_off = rest[:1] in ((sign(")"),), (sign("."),), (sign(":"),))
  rest = rest[is_set_off:]
  if rest and (not is_set_off or _names_choice(rest)):
    return None
  return Choice(letter, rest)


def without_preamble(nodes: Nodes) -> Nodes:
  """Removes a preamble such as "the answer is"."""
  index, said = 0, set()
  while index < len(nodes) and nodes[index].kind in ("word", "letter"):
    end = index + 1
    if nodes[index].kind == "letter":
      while end < len(nodes) and nodes[end].kind == "letter":
        if nodes[end].spaced:
          break
        end += 1
    word = "".join(node.text for node in nodes[index:end]).casefold()
    if word not in _PREAMBLE:
      break
    said.add(word)
    index = end
  if index == len(nodes) or said.isdisjoint(("answer", "is")):
    return nodes
  return nodes[index + (nodes[index] == sign(":")) :]


def _is_capital(node: Node) -> bool:
  return (
    node.kind in ("letter", "word")
    and len(node.text) == 1
    and node.text.isascii()
    and node.text.isupper()
  )


def _names_choice(nodes: Nodes) -> bool:
  """Returns whether nodes are a list or name a choice in brackets."""
  if len(parts.split(nodes, ("or", "and", ";"))) > 1:
    return True
  if len(nodes) == 1 and _is_capital(nodes[0]):
    return True
  return any(
    nodes[index] == sign("(")
    and nodes[index + 2] == sign(")")
    and _is_capital(nodes[index + 1])
    for index in range(len(nodes) - 2)
  )


def _mark(nodes: Nodes) -> tuple[str, Nodes]:
  """Splits nodes into the mark before a label and the rest."""
  if not nodes:
    return "", nodes
  first = nodes[0]
  if first.kind == "command" and first.text in _MARKS:
    return first.text, nodes[1:]
  if first.kind == "command" and first.text in _ACCENTS and len(nodes) == 1:
    return first.text, first.args[0]
  if first.kind == "word" and first.text.casefold() in _MARKS and nodes[1:]:
    return first.text.casefold(), nodes[1:]
  return "", nodes


def _runs(nodes: Nodes) -> list[str] | None:
  """Splits letters and words at spaces, or returns None for other nodes."""
  runs: list[str] = []
  joined_at = None
  for node in nodes:
    if node.kind == "sign" and node.text in _INSIDE:
      joined_at = len(runs) if node.text in "-'" else joined_at
    elif node.kind not in ("letter", "word"):
      return None
    elif (
      runs
      and node.kind == "letter"
      and not (node.spaced or joined_at == len(runs))
    ):
      runs[-1] += node.text
    else:
      runs.append(node.text)
  if joined_at is not None and not _is_compound(runs, joined_at):
    return None
  return runs or None


def _is_compound(runs: list[str], index: int) -> bool:
  """Returns whether a hyphen joins words and is not a minus sign."""
  return 0 < index < len(runs) and max(map(len, runs[index - 1 :])) > 2
