"""Our wording of AZR's prompts (figures 33-39, D.1, D.2), in three formats.

To use the paper's own wording, pass custom templates (`templates.py`).

| prompt format | use |
| --- | --- |
| `full` | pretrained models: states every requirement |
| `compact` | models with a short context: one line and the fences |
| `few_shot` | small pretrained models that cannot follow instructions: two
  example exchanges, then `compact` |

In all formats, a response is a think part, then an answer part with labelled
fences.
"""

from collections.abc import Iterable, Sequence

from azr_jax.tasks.programs.exemplars import EXEMPLARS, Exemplar
from azr_jax.tasks.programs.task import (
  ABDUCTION,
  DEDUCTION,
  ERROR_DEDUCTION,
  FORBIDDEN_MODULES,
  INDUCTION,
  Triplet,
  component_name,
)

PROMPT_FORMATS = ("full", "compact", "few_shot")

FULL, COMPACT, FEW_SHOT = PROMPT_FORMATS


def fence(label: str, text: str) -> str:
  """Wraps a text in a labelled fence."""
  return f"```{label}\n{text}\n```"


def wrap(instruction: str, prompt_format: str) -> str:
  """Wraps an instruction in the R1 template (figure 33).

  The prompt ends inside the think part.
  """
  if prompt_format != FULL:
    return f"User: {instruction}\nAssistant: <think>"
  return (
    "The User asks, the Assistant thinks first and answers after that. The "
    "thinking stands between <think> and </think>, the answer between "
    "<answer> and </answer>.\n"
    f"User: {instruction}\nAssistant: <think>"
  )


def response(think: str, answer: str) -> str:
  """Formats a response to any of the prompts."""
  return f"{think}</think>\n<answer>{answer}</answer>"


def short_prompt(
  instruction: str,
  prompt_format: str,
  exchanges: Iterable[tuple[str, str, str]],
) -> str:
  """Returns the compact prompt, or the few-shot prompt with examples.

  Args:
    instruction: the compact instruction.
    prompt_format: `COMPACT` or `FEW_SHOT`.
    exchanges: the compact prompt, thinking and answer of each example; not read
      for compact prompts.
  """
  prompt = wrap(instruction, prompt_format)
  if prompt_format == COMPACT:
    return prompt
  examples = [
    # Tags are on separate lines to keep tokenizers from merging them with the
    # fences.
    example_prompt + response(think, f"\n{answer}\n")
    for example_prompt, think, answer in exchanges
  ]
  return "\n\n".join([*examples, prompt])


# The paper's prompts do not state this rule.
_EQUALITY_RULE = (
  "Values are compared strictly by type: 1, 1.0 and True are three different "
  "values, and so are a list and a tuple. Sets and dictionary keys have no "
  "order. Write literals where you can, or set, frozenset, deque, Counter, "
  "OrderedDict, Fraction, Decimal, complex and float('nan') with literal "
  "arguments. "
)
_COMPUTED_OUTPUT = "An expression that computes the value does not count."
_COMPUTED_INPUT = (
  "Another expression of builtins counts as the value that it has; names of a "
  "program do not exist in it."
)


def equality_rule(task_type: str) -> str:
  """Returns the sentences that explain how answers are compared."""
  computed = _COMPUTED_OUTPUT if task_type == DEDUCTION else _COMPUTED_INPUT
  return _EQUALITY_RULE + computed


_PROGRAM_RULES = f"""Rules for the program:
- The entry function is called `f`, takes at least one argument and returns a \
value. Helper functions and classes may stand beside it or inside it.
- It always returns the same value for the same arguments: no randomness, \
clock, files, network, printing or outside state.
TIME_RULE\
- Imports and classes come first; nothing follows the return of `f`.
- Only Python's standard library can be imported; numpy and other packages \
are not installed.
- None of these may be used: {", ".join(FORBIDDEN_MODULES)}."""

_TIME_RULE = "- Each call finishes within {:g} seconds of CPU time.\n"

# The rules for a program that must raise (appendix D.1).
_ERROR_RULES = (
  _PROGRAM_RULES.replace("argument and returns a value.", "argument.").replace(
    "returns the same value", "raises the same exception"
  )
  + """
- The exception is a built-in one that is raised while `f` runs, not one of \
files, imports, memory or warnings; there is no `open` or `input`."""
)

_TRIPLET_GOALS = {
  DEDUCTION: (
    "A solver will see your program and your input and must work out the "
    "output by reasoning alone."
  ),
  ABDUCTION: (
    "A solver will see your program and its output and must find an input "
    "that produces this output."
  ),
  ERROR_DEDUCTION: (
    "Calling your program with your input must raise one of Python's built-in "
    "exceptions. A solver will see both and must work out which."
  ),
}
_COMPACT_TRIPLET = {
  DEDUCTION: "New program, predict output.",
  ABDUCTION: "New program, predict input.",
  ERROR_DEDUCTION: "New program, predict error.",
}


def _equality(states_rule: bool, task_type: str) -> str:
  """Returns the equality rule to append to a sentence, or ""."""
  return f" {equality_rule(task_type)}" if states_rule else ""


def filled_rules(rules: str, limit_s: float | None) -> str:
  """Fills the time limit into the rules; None leaves it out."""
  time_rule = "" if limit_s is None else _TIME_RULE.format(limit_s)
  return rules.replace("TIME_RULE", time_rule)


def _show(references: Sequence[Triplet], *, outputs: bool) -> str:
  return "\n".join(
    fence("python", triplet.code)
    + "\n"
    + fence("input", triplet.input)
    + ("\n" + fence("output", triplet.output) if outputs else "")
    for triplet in references
  )


def built_on(components: Sequence[str]) -> str:
  """Returns the part of a prompt that lists components (appendix D.2)."""
  if not components:
    return ""
  names = ", ".join(component_name(i) for i in range(len(components)))
  fenced = fence("python", "\n".join(components))
  return f"\nCall all of these in it, as they are: {names}.\n{fenced}"


def propose_triplet_prompt(
  task_type: str,
  references: Sequence[Triplet],
  prompt_format: str,
  components: Sequence[str] = (),
  limit_s: float | None = None,
) -> str:
  """Returns a prompt that asks for a program and one input (figures 34, 35).

  Args:
    task_type: deduction, abduction or error deduction.
    references: the example triplets.
    prompt_format: one of `PROMPT_FORMATS`.
    components: the programs that `f` must call (appendix D.2), if any.
    limit_s: the limit in CPU seconds per call, for the full format. None leaves
      it out.
  """
  # Few-shot prompts show no outputs, because the model would imitate them.
  shown = _show(references, outputs=prompt_format != FEW_SHOT)
  to_use = built_on(components)
  if prompt_format != FULL:
    goal = _COMPACT_TRIPLET[task_type]

    def exchange(e: Exemplar) -> tuple[str, str, str]:
      raises = task_type == ERROR_DEDUCTION
      triplets = {
        other: Triplet(other.code, other.failing, other.error)
        if raises
        else Triplet(other.code, other.inputs[0], other.outputs[0])
        for other in EXEMPLARS
      }
      answer = _show([triplets.pop(e)], outputs=False)
      others = _show(list(triplets.values()), outputs=False)
      return wrap(f"{goal}\n{others}", COMPACT), e.plan, answer

    return short_prompt(
      f"{goal}\n{shown}{to_use}", prompt_format, map(exchange, EXEMPLARS)
    )
  is_error = task_type == ERROR_DEDUCTION
  rules = filled_rules(_ERROR_RULES if is_error else _PROGRAM_RULES, limit_s)
  if components:
    to_use += (
      "\nThey are put before your program; do not repeat them. Neither may the "
      "result be the same without one of them, nor be what one of them alone "
      "returns for your input."
    )
  return wrap(
    f"""Invent a Python program and one input for it.
{_TRIPLET_GOALS[task_type]} The task should need several steps of real \
reasoning: transform state, combine algorithms, use data structures, \
recursion or dynamic programming. It must differ clearly from the reference \
programs below.

{rules}

Rules for the input:
- Exactly one input, as the arguments of one call, separated by commas, \
strings in quotes.
- The arguments are values: literals, or expressions of builtins such as \
list(range(10)). They use no names of the program and are no functions or \
objects of classes.

Plan first how the task will be hard and new. Then answer with two fences:
{fence("python", "def f(...):" + chr(10) + "    ...")}
{fence("input", "'text', {'key': 3}")}

Reference programs:
{shown}{to_use}""",
    prompt_format,
  )


def propose_induction_prompt(
  code: str, num_inputs: int, prompt_format: str
) -> str:
  """Returns a prompt that asks for inputs and a message (figure 36)."""
  if prompt_format != FULL:

    def exchange(e: Exemplar) -> tuple[str, str, str]:
      fences = [fence("input", text) for text in e.inputs]
      fences.append(fence("message", e.message))
      prompt = propose_induction_prompt(e.code, len(e.inputs), COMPACT)
      return prompt, e.plan, "\n".join(fences)

    return short_prompt(
      f"Write {num_inputs} inputs and a message.\n{fence('python', code)}",
      prompt_format,
      map(exchange, EXEMPLARS),
    )
  return wrap(
    f"""Write {num_inputs} inputs for the program below, and a message about it.
A solver will see some of your inputs with their outputs and your message, \
and must write a program that does the same. Choose inputs that differ from \
each other and together show everything the program does. The message may \
be a hint, a description or a riddle, but it must not contain the program. \
The task should be hard but possible.

Put the arguments of each call in a fence of its own, as literals or \
expressions of builtins, and the message in another:
{fence("input", "'text', {'key': 3}")}
{fence("message", "...")}

Program:
{fence("python", code)}""",
    prompt_format,
  )


def solve_deduction_prompt(
  code: str,
  argument_text: str,
  prompt_format: str,
  states_equality: bool = False,
) -> str:
  """Returns a prompt that asks for the output of a call (figure 38).

  The full format says how values are compared if `states_equality` is set.
  """
  task = f"{fence('python', code)}\n{fence('input', argument_text)}"
  if prompt_format != FULL:

    def exchange(e: Exemplar) -> tuple[str, str, str]:
      prompt = solve_deduction_prompt(e.code, e.inputs[0], COMPACT)
      return prompt, e.forward, fence("output", e.outputs[0])

    return short_prompt(
      f"Find the output.\n{task}", prompt_format, map(exchange, EXEMPLARS)
    )
  return wrap(
    f"""Work out, step by step, what the program returns for the input.
Answer with one literal in an output fence; several returned values are one \
tuple.{_equality(states_equality, DEDUCTION)}
{task}

The answer looks like this:
{fence("output", "{'age': 20, 'city': 'New York'}")}""",
    prompt_format,
  )


def solve_error_prompt(
  code: str, argument_text: str, prompt_format: str
) -> str:
  """Returns a prompt that asks for a call's exception (appendix D.1)."""
  task = f"{fence('python', code)}\n{fence('input', argument_text)}"
  if prompt_format != FULL:

    def exchange(e: Exemplar) -> tuple[str, str, str]:
      prompt = solve_error_prompt(e.code, e.failing, COMPACT)
      return prompt, e.failure, fence("output", e.error)

    return short_prompt(
      f"Find the error.\n{task}", prompt_format, map(exchange, EXEMPLARS)
    )
  return wrap(
    f"""Work out, step by step, which exception the program raises.
Answer with the name of its class, and no message, in an output fence.
{task}

The answer looks like this:
{fence("output", "ZeroDivisionError")}""",
    prompt_format,
  )


def solve_abduction_prompt(
  code: str, output: str, prompt_format: str, states_equality: bool = False
) -> str:
  """Returns a prompt that asks for an input with a given output (figure 37).

  The full format says how values are compared if `states_equality` is set.
  """
  task = f"{fence('python', code)}\n{fence('output', output)}"
  if prompt_format != FULL:

    def exchange(e: Exemplar) -> tuple[str, str, str]:
      prompt = solve_abduction_prompt(e.code, e.outputs[0], COMPACT)
      return prompt, e.backward, fence("input", e.abduced)

    return short_prompt(
      f"Find an input.\n{task}", prompt_format, map(exchange, EXEMPLARS)
    )
  return wrap(
    f"""Find, step by step, an input for which the program returns the output.
Any input that gives this output is right. Answer with the arguments of one \
call in an input fence, separated by commas, strings in quotes; the fence is \
empty if the call has none.{_equality(states_equality, ABDUCTION)}
{task}

The answer looks like this:
{fence("input", "'text', {'key': 3}")}""",
    prompt_format,
  )


def solve_induction_prompt(
  inputs: Sequence[str],
  outputs: Sequence[str],
  message: str,
  prompt_format: str,
  limit_s: float | None = None,
  states_equality: bool = False,
) -> str:
  """Returns a prompt that asks for a program, given cases (figure 39).

  The full format states the limit in CPU seconds per call unless it is None,
  and how values are compared if `states_equality` is set.
  """
  cases = "\n".join(
    f"{fence('input', i)}\n{fence('output', o)}"
    for i, o in zip(inputs, outputs, strict=True)
  )
  task = f"{cases}\n{fence('message', message)}"
  if prompt_format != FULL:

    def exchange(e: Exemplar) -> tuple[str, str, str]:
      shown = e.inputs[:2], e.outputs[:2]
      prompt = solve_induction_prompt(*shown, e.message, COMPACT)
      return prompt, e.rule, fence("python", e.code)

    return short_prompt(
      f"Write the program.\n{task}", prompt_format, map(exchange, EXEMPLARS)
    )
  return wrap(
    f"""Write the program that turns these inputs into these outputs.
It will be run on further inputs that you do not see and must be right on \
all of them, so find the general rule; going through the cases one by one \
helps.{_equality(states_equality, INDUCTION)}

{filled_rules(_PROGRAM_RULES, limit_s)}

{task}

Answer with the whole program in one fence:
{fence("python", "def f(a):" + chr(10) + "    return a")}""",
    prompt_format,
  )
