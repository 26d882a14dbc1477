"""The files of a template folder for program tasks (AZR, figures 33 to 39).

| file | figure | placeholders ([optional]) |
| --- | --- | --- |
| `frame.txt` | 33 | TASK_INSTRUCTION |
| `propose_abduction.txt` | 34 | CODE_REFERENCES_FROM_BUFFER, [F] |
| `propose_deduction.txt` | 35 | CODE_REFERENCES_FROM_BUFFER, [F] |
| `propose_induction.txt` | 36 | SNIPPET_FROM_BUFFER, [NUM_INPUTS] |
| `solve_abduction.txt` | 37 | SNIPPET, OUTPUT, [EQUALITY_RULE] |
| `solve_deduction.txt` | 38 | SNIPPET, INPUT, [EQUALITY_RULE] |
| `solve_induction.txt` | 39 | INPUT_OUTPUT_PAIRS, MESSAGE, [EQUALITY_RULE, F] |
| `propose_error_deduction.txt` | (D.1) | CODE_REFERENCES_FROM_BUFFER, [F] |
| `solve_error_deduction.txt` | (D.1) | SNIPPET, INPUT |
| `reference.txt` | | SNIPPET, INPUT, OUTPUT, [INDEX]: one reference |
| `case.txt` | | INPUT, OUTPUT, [INDEX]: one pair of figure 39 |

F stands for LIST_OF_FORBIDDEN_PACKAGES and CPU_SECONDS. The figures do not show
the layout of references and cases; without the last two files, they are written
as labelled fences.
"""

from azr_jax.tasks.templates import PromptFile

FRAME, REFERENCE, CASE = "frame", "reference", "case"
_RULES = ("LIST_OF_FORBIDDEN_PACKAGES", "CPU_SECONDS")
_PROPOSE_TRIPLET = PromptFile(("CODE_REFERENCES_FROM_BUFFER",), _RULES)
FILES = {
  FRAME: PromptFile(("TASK_INSTRUCTION",)),
  "propose_abduction": _PROPOSE_TRIPLET,
  "propose_deduction": _PROPOSE_TRIPLET,
  "propose_induction": PromptFile(("SNIPPET_FROM_BUFFER",), ("NUM_INPUTS",)),
  "solve_abduction": PromptFile(("SNIPPET", "OUTPUT"), ("EQUALITY_RULE",)),
  "solve_deduction": PromptFile(("SNIPPET", "INPUT"), ("EQUALITY_RULE",)),
  "solve_induction": PromptFile(
    ("INPUT_OUTPUT_PAIRS", "MESSAGE"), ("EQUALITY_RULE", *_RULES)
  ),
  "propose_error_deduction": _PROPOSE_TRIPLET,
  "solve_error_deduction": PromptFile(("SNIPPET", "INPUT")),
  REFERENCE: PromptFile(
    ("SNIPPET", "INPUT", "OUTPUT"),
    ("INDEX",),
    "```python\n{SNIPPET}\n```\n```input\n{INPUT}\n```\n"
    "```output\n{OUTPUT}\n```",
  ),
  CASE: PromptFile(
    ("INPUT", "OUTPUT"),
    ("INDEX",),
    "```input\n{INPUT}\n```\n```output\n{OUTPUT}\n```",
  ),
}
