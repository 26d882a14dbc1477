"""The files of a template folder for program tasks (AZR, figures 33 to 39).

docs/guide/prompts.md says which figure each file is. The figures do not show
the layout of references and cases; without the files `reference` and `case`,
they are written as labelled fences.
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
  "propose_environment": PromptFile(("ENVIRONMENTS_FROM_BUFFER",), _RULES),
  "solve_environment": PromptFile(("MESSAGE", "INSTANCE")),
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
# Files with which a solver is asked.
SOLVER_FILES = {
  name: file
  for name, file in FILES.items()
  if name in (FRAME, CASE) or name.startswith("solve_")
}
