"""The six AZR prompts (figures 33-39), in a full and a compact style.

`full` spells out every requirement for pretrained models; `compact` is one
line and the fences, for models with a short context. Both use the same
protocol: a think part, then an answer part with labelled fences.
"""

from collections.abc import Sequence

from azr_jax.tasks.programs.task import (
  ABDUCTION,
  DEDUCTION,
  FORBIDDEN_MODULES,
  Triplet,
)

STYLES = ("full", "compact")

FULL, COMPACT = STYLES


def fence(label: str, text: str) -> str:
  """Wraps a text in a labelled fence."""
  return f"```{label}\n{text}\n```"


def wrap(instruction: str, style: str) -> str:
  """The R1 template of figure 33; the reply starts inside the think part."""
  if style == COMPACT:
    return f"User: {instruction}\nAssistant: <think>"
  return (
    "The User asks, the Assistant thinks first and answers after that. The "
    "thinking stands between <think> and </think>, the answer between "
    "<answer> and </answer>.\n"
    f"User: {instruction}\nAssistant: <think>"
  )


_EQUALITY_RULE = (
  "Values are compared strictly by type: 1, 1.0 and True are three different "
  "values, and so are a list and a tuple. Sets and dictionary keys have no "
  "order. Write literals, no expressions or calls."
)
_PROGRAM_RULES = f"""Rules for the program:
- The entry function is called `f`, takes at least one argument and returns a \
value. Helper functions and classes may stand beside it or inside it.
- It always returns the same value for the same arguments: no randomness, \
clock, files, network, printing or outside state.
- It finishes within 10 seconds.
- Imports and classes come first; nothing follows the return of `f`.
- None of these may be used: {", ".join(FORBIDDEN_MODULES)}."""

_TRIPLET_GOALS = {
  DEDUCTION: (
    "A solver will see your program and your input and must work out the "
    "output by reasoning alone."
  ),
  ABDUCTION: (
    "A solver will see your program and its output and must find an input "
    "that produces this output."
  ),
}
_COMPACT_TRIPLET = {
  DEDUCTION: "New program, predict output.",
  ABDUCTION: "New program, predict input.",
}


def propose_triplet_prompt(
  task_type: str, references: Sequence[Triplet], style: str
) -> str:
  """Asks for a new program and one input (figures 34 and 35)."""
  shown = "\n".join(
    fence("python", triplet.code)
    + "\n"
    + fence("input", triplet.input)
    + "\n"
    + fence("output", triplet.output)
    for triplet in references
  )
  if style == COMPACT:
    return wrap(f"{_COMPACT_TRIPLET[task_type]}\n{shown}", style)
  return wrap(
    f"""Invent a Python program and one input for it.
{_TRIPLET_GOALS[task_type]} The task should need several steps of real \
reasoning: transform state, combine algorithms, use data structures, \
recursion or dynamic programming. It must differ clearly from the reference \
programs below.

{_PROGRAM_RULES}

Rules for the input:
- Exactly one input, as the arguments of one call, separated by commas, \
strings in quotes.

Plan first how the task will be hard and new. Then answer with two fences:
{fence("python", "def f(...):" + chr(10) + "    ...")}
{fence("input", "'text', {'key': 3}")}

Reference programs:
{shown}""",
    style,
  )


def propose_induction_prompt(code: str, num_inputs: int, style: str) -> str:
  """Asks for inputs and a message about a program (figure 36)."""
  if style == COMPACT:
    return wrap(
      f"Write {num_inputs} inputs and a message.\n{fence('python', code)}",
      style,
    )
  return wrap(
    f"""Write {num_inputs} inputs for the program below, and a message about it.
A solver will see some of your inputs with their outputs and your message, \
and must write a program that does the same. Choose inputs that differ from \
each other and together show everything the program does. The message may \
be a hint, a description or a riddle, but it must not contain the program. \
The task should be hard but possible.

Put the arguments of each call in a fence of its own, and the message in \
another:
{fence("input", "'text', {'key': 3}")}
{fence("message", "...")}

Program:
{fence("python", code)}""",
    style,
  )


def solve_deduction_prompt(code: str, argument_text: str, style: str) -> str:
  """Asks for the output of a call (figure 38)."""
  task = f"{fence('python', code)}\n{fence('input', argument_text)}"
  if style == COMPACT:
    return wrap(f"Find the output.\n{task}", style)
  return wrap(
    f"""Work out, step by step, what the program returns for the input.
Answer with one literal in an output fence; several returned values are one \
tuple. {_EQUALITY_RULE}
{task}

The answer looks like this:
{fence("output", "{'age': 20, 'city': 'New York'}")}""",
    style,
  )


def solve_abduction_prompt(code: str, output: str, style: str) -> str:
  """Asks for an input that produces an output (figure 37)."""
  task = f"{fence('python', code)}\n{fence('output', output)}"
  if style == COMPACT:
    return wrap(f"Find an input.\n{task}", style)
  return wrap(
    f"""Find, step by step, an input for which the program returns the output.
Any input that gives this output is right. Answer with the arguments of one \
call in an input fence, separated by commas, strings in quotes. \
{_EQUALITY_RULE}
{task}

The answer looks like this:
{fence("input", "'text', {'key': 3}")}""",
    style,
  )


def solve_induction_prompt(
  inputs: Sequence[str], outputs: Sequence[str], message: str, style: str
) -> str:
  """Asks for the program behind some cases and a message (figure 39)."""
  cases = "\n".join(
    f"{fence('input', i)}\n{fence('output', o)}"
    for i, o in zip(inputs, outputs, strict=True)
  )
  task = f"{cases}\n{fence('message', message)}"
  if style == COMPACT:
    return wrap(f"Write the program.\n{task}", style)
  return wrap(
    f"""Write the program that turns these inputs into these outputs.
It will be run on further inputs that you do not see and must be right on \
all of them, so find the general rule; going through the cases one by one \
helps. {_EQUALITY_RULE}

{_PROGRAM_RULES}

{task}

Answer with the whole program in one fence:
{fence("python", "def f(a):" + chr(10) + "    return a")}""",
    style,
  )
