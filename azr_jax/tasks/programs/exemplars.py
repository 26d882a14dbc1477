"""Two example tasks with chains of thought, for few-shot prompts.

Each example covers all prompts: proposing and solving deduction, abduction,
induction and error deduction.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Exemplar:
  """A program with the responses of its proposers and solvers.

  Attributes:
    code: the program.
    inputs: the argument texts of the cases. The first is the triplet's input.
    outputs: the outputs of the cases.
    message: the message to an induction solver.
    plan: the proposer's thinking.
    forward: the thinking of deduction, from the first input to its output.
    backward: the thinking of abduction, from the first output to `abduced`.
    abduced: the answer of abduction, an input that gives the first output.
    rule: the thinking of induction, from cases and message to the program.
    failing: an input for which the program raises an exception.
    failure: the thinking of error deduction, from `failing` to `error`.
    error: the name of the raised exception.
  """

  code: str
  inputs: tuple[str, ...]
  outputs: tuple[str, ...]
  message: str
  plan: str
  forward: str
  backward: str
  abduced: str
  rule: str
  failing: str
  failure: str
  error: str


EXEMPLARS = (
  Exemplar(
    code="""def f(numbers):
  total = 0
  for number in numbers:
    if number % 2 == 0:
      total += number * number
  return total""",
    inputs=("[1, 2, 3, 4]", "[5, 6]", "[]", "[2, 2, 7]"),
    outputs=("20", "36", "0", "8"),
    message="Only the even ones count, each by its square.",
    plan="Keep some of the numbers, change them, and add them up.",
    forward="2 and 4 are even. 2 * 2 = 4 and 4 * 4 = 16. 4 + 16 = 20.",
    backward="20 = 4 + 16, and 4 and 16 are the squares of 2 and 4.",
    abduced="[2, 4]",
    rule="Go through the numbers and add the squares of the even ones.",
    failing="[4, 'a']",
    failure="4 is even. 'a' % 2 formats text that has no place for a number.",
    error="TypeError",
  ),
  Exemplar(
    code="""def f(text, times):
  words = text.split()
  return '-'.join(words[::-1]) * times""",
    inputs=("'red blue', 2", "'one', 1", "'a b c', 1", "'x y', 3"),
    outputs=("'blue-redblue-red'", "'one'", "'c-b-a'", "'y-xy-xy-x'"),
    message="Words walk backwards, hand in hand, several times.",
    plan="Turn the order of the words around, join them, and repeat that.",
    forward="The words are red, blue. Backwards: blue-red. Twice that.",
    backward="The output is blue-red twice, so the words are red, blue.",
    abduced="'red blue', 2",
    rule="Split into words, reverse them, join with a dash, and repeat.",
    failing="None, 2",
    failure="None has no method called split.",
    error="AttributeError",
  ),
)
