"""Builds the prompts of a run from built-in or custom templates."""

import dataclasses
from collections.abc import Sequence

from azr_jax.tasks.programs import (
  environment_prompts,
  environments,
  parsing,
  prompts,
  solving,
  templates,
)
from azr_jax.tasks.programs.task import (
  FORBIDDEN_MODULES,
  PROPOSE,
  SOLVE,
  EnvironmentTask,
  InductionTask,
  Instance,
  Task,
  Triplet,
)
from azr_jax.tasks.templates import Templates


@dataclasses.dataclass(frozen=True)
class PromptBuilder:
  """Builds prompts, and holds the format of their responses.

  Attributes:
    prompt_format: one of `prompts.PROMPT_FORMATS`, for the built-in wording.
    proposer_timeout_s: the limit in CPU seconds per call of a proposed program.
    solver_timeout_s: the limit in CPU seconds per call of a solver's program.
    states_equality: whether built-in solver prompts explain how values are
      compared.
    answer_format: one of `parsing.ANSWER_FORMATS`.
    custom_templates: the user's templates. None uses the built-in wording.
    environment_timeout_s: the limit in CPU seconds per call of a proposed
      environment; None: `proposer_timeout_s`.
  """

  prompt_format: str
  proposer_timeout_s: float
  solver_timeout_s: float
  states_equality: bool = False
  answer_format: str = parsing.FENCED
  custom_templates: Templates | None = None
  environment_timeout_s: float | None = None

  def propose_triplet(
    self,
    task_type: str,
    references: Sequence[Triplet],
    components: Sequence[str] = (),
  ) -> str:
    """Returns a proposer's prompt; see `prompts.propose_triplet_prompt`."""
    if self.custom_templates is None:
      return prompts.propose_triplet_prompt(
        task_type,
        references,
        self.prompt_format,
        components,
        self.proposer_timeout_s,
      )
    shown = [
      self.custom_templates.fill(
        templates.REFERENCE,
        INDEX=index,
        SNIPPET=reference.code,
        INPUT=reference.input,
        OUTPUT=reference.output,
      )
      for index, reference in enumerate(references)
    ]
    instruction = self.custom_templates.fill(
      f"{PROPOSE}_{task_type}",
      CODE_REFERENCES_FROM_BUFFER="\n".join(shown),
      **_rules(self.proposer_timeout_s),
    )
    return self._fill_frame(instruction + prompts.built_on(components))

  def propose_induction(self, code: str, num_inputs: int) -> str:
    """Returns a prompt that asks for inputs and a message (figure 36)."""
    if self.custom_templates is None:
      return prompts.propose_induction_prompt(
        code, num_inputs, self.prompt_format
      )
    return self._fill_frame(
      self.custom_templates.fill(
        f"{PROPOSE}_induction", SNIPPET_FROM_BUFFER=code, NUM_INPUTS=num_inputs
      )
    )

  def propose_environment(self, references: Sequence[EnvironmentTask]) -> str:
    """Returns a prompt that asks for an environment."""
    limit_s = self.environment_timeout_s or self.proposer_timeout_s
    if self.custom_templates is None:
      return environment_prompts.propose(
        references, self.prompt_format, limit_s
      )
    return self._fill_frame(
      self.custom_templates.fill(
        f"{PROPOSE}_environment",
        ENVIRONMENTS_FROM_BUFFER=environment_prompts.show(references),
        **_rules(limit_s, environments.FORBIDDEN),
      )
    )

  def solve(self, task_type: str, task: Task) -> str:
    """Returns the solver's prompt for a task, without the answer."""
    if self.custom_templates is None:
      return solving.solve_prompt_text(
        task_type,
        task,
        self.prompt_format,
        self.solver_timeout_s,
        self.states_equality,
      )
    values = {
      "EQUALITY_RULE": prompts.equality_rule(task_type),
      **_rules(self.solver_timeout_s),
    }
    if isinstance(task, InductionTask):
      shown = zip(*solving.shown_cases(task), strict=True)
      cases = [
        self.custom_templates.fill(
          templates.CASE, INDEX=index, INPUT=argument, OUTPUT=output
        )
        for index, (argument, output) in enumerate(shown)
      ]
      values |= {
        "INPUT_OUTPUT_PAIRS": "\n".join(cases),
        "MESSAGE": task.message,
      }
    elif isinstance(task, Instance):
      values = {
        "MESSAGE": task.environment.message,
        "INSTANCE": task.value,
      }
    else:
      assert isinstance(task, Triplet)
      # The answer stays hidden: a type's template has no placeholder for it.
      values |= {
        "SNIPPET": task.code,
        "INPUT": task.input,
        "OUTPUT": task.output,
      }
    return self._fill_frame(
      self.custom_templates.fill(f"{SOLVE}_{task_type}", **values)
    )

  def _fill_frame(self, instruction: str) -> str:
    assert self.custom_templates is not None
    return self.custom_templates.fill(
      templates.FRAME, TASK_INSTRUCTION=instruction
    )


def _rules(
  limit_s: float, forbidden: Sequence[str] = FORBIDDEN_MODULES
) -> dict[str, str]:
  return {
    "LIST_OF_FORBIDDEN_PACKAGES": ", ".join(forbidden),
    "CPU_SECONDS": f"{limit_s:g}",
  }
