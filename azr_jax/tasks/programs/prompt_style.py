"""How the prompts of a run are written: our wording, or a user's templates."""

import dataclasses
from collections.abc import Sequence

from azr_jax.tasks.programs import parsing, prompts, solving, templates
from azr_jax.tasks.programs.task import (
  FORBIDDEN_MODULES,
  PROPOSE,
  SOLVE,
  InductionTask,
  Task,
  Triplet,
)


@dataclasses.dataclass(frozen=True)
class PromptStyle:
  """How the prompts of a run are written, and its responses read.

  Attributes:
    prompt_format: one of `prompts.PROMPT_FORMATS`, our wording.
    proposed_s: CPU seconds that a call of a proposed program may take.
    solving_s: those of a solver's program.
    equality_rule: whether our solver's prompts say how values are compared.
    answer_format: one of `parsing.ANSWER_FORMATS`.
    words: a user's wording instead of ours; None: ours.
  """

  prompt_format: str
  proposed_s: float
  solving_s: float
  equality_rule: bool = True
  answer_format: str = parsing.FENCED
  words: templates.Templates | None = None

  def propose_triplet(
    self,
    task_type: str,
    references: Sequence[Triplet],
    components: Sequence[str] = (),
  ) -> str:
    """Returns a proposer's prompt; see `prompts.propose_triplet_prompt`."""
    if self.words is None:
      return prompts.propose_triplet_prompt(
        task_type, references, self.prompt_format, components, self.proposed_s
      )
    shown = [
      self.words.fill(
        templates.REFERENCE,
        INDEX=index,
        SNIPPET=reference.code,
        INPUT=reference.input,
        OUTPUT=reference.output,
      )
      for index, reference in enumerate(references)
    ]
    instruction = self.words.fill(
      f"{PROPOSE}_{task_type}",
      CODE_REFERENCES_FROM_BUFFER="\n".join(shown),
      **_rules(self.proposed_s),
    )
    return self._framed(instruction + prompts.built_on(components))

  def propose_induction(self, code: str, num_inputs: int) -> str:
    """Returns a prompt that asks for inputs and a message (figure 36)."""
    if self.words is None:
      return prompts.propose_induction_prompt(
        code, num_inputs, self.prompt_format
      )
    return self._framed(
      self.words.fill(
        f"{PROPOSE}_induction", SNIPPET_FROM_BUFFER=code, NUM_INPUTS=num_inputs
      )
    )

  def solve(self, task_type: str, task: Task) -> str:
    """Returns the solver's prompt of a task, without the answer."""
    if self.words is None:
      return solving.solve_prompt_text(
        task_type, task, self.prompt_format, self.solving_s, self.equality_rule
      )
    values = {"EQUALITY_RULE": prompts.EQUALITY_RULE, **_rules(self.solving_s)}
    if isinstance(task, InductionTask):
      shown = zip(*solving.shown_cases(task), strict=True)
      cases = [
        self.words.fill(
          templates.CASE, INDEX=index, INPUT=argument, OUTPUT=output
        )
        for index, (argument, output) in enumerate(shown)
      ]
      values |= {
        "INPUT_OUTPUT_PAIRS": "\n".join(cases),
        "MESSAGE": task.message,
      }
    else:
      # The template of a type has no placeholder for the answer.
      values |= {
        "SNIPPET": task.code,
        "INPUT": task.input,
        "OUTPUT": task.output,
      }
    return self._framed(self.words.fill(f"{SOLVE}_{task_type}", **values))

  def _framed(self, instruction: str) -> str:
    assert self.words is not None
    return self.words.fill(templates.FRAME, TASK_INSTRUCTION=instruction)


def _rules(limit_s: float) -> dict[str, str]:
  return {
    "LIST_OF_FORBIDDEN_PACKAGES": ", ".join(FORBIDDEN_MODULES),
    "CPU_SECONDS": f"{limit_s:g}",
  }
