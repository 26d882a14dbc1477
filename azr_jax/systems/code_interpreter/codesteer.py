"""CodeSteer: one model steers another between text and code (R1-CI, 3.1).

The life of an answer:
1. The guidance model reads the question and chooses code or text.
2. The solver answers in this solution style, and its script runs.
3. A checker writes a script that checks the answer, and this script runs
   (`checker.py`).
4. The guidance model reads the question, answer, output, check and code
   complexity. It accepts the answer, or requests another one with a solution
   style or advice, up to `rounds` times. The answer after the last round is
   final.

Conversations do not wait for each other. The policy plays all three roles.

Differences from CodeSteer (arXiv 2502.04350): a role sees the question and the
last answer, not the whole conversation; the guidance model's first choice is
text unless it says code; scripts have the executor's time limit instead of
10 s. The checker and the guidance model sample at the policy's temperature,
because a retry at temperature 0 would repeat the first response.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax import types
from azr_jax.config.settings import Settings, setting
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.event_loop import as_completed
from azr_jax.rollout.policy import Answers, Policy
from azr_jax.systems.code_interpreter import checker, script_complexity
from azr_jax.systems.code_interpreter.phases import (
  Phases,
  SteeredConversation,
  printed,
)
from azr_jax.tasks.questions import prompts as question_prompts
from azr_jax.tasks.templates import PromptFormat, Templates
from azr_jax.tools import code_blocks

# `solver_temperature` that uses the temperature of the other roles.
_AS_SAMPLED = -1.0
# The guidance model's choices that accept an answer.
_ACCEPTED = ("return answer", "terminate")
_CHOOSE = (
  "A solver can answer the question below by writing and running Python, or by "
  "reasoning in words. Think about which of them is less likely to go wrong. "
  "End with <<<Code>>> or <<<Text>>>.\n\nQuestion: {question}\n\nReply:\n"
)
_STEER = (
  "You guide a solver, who can write Python or reason in words, to the right "
  "answer.\nQuestion: {question}\n\nThe solver's answer:\n{answer}\n\nWhat its "
  "code printed: {output}\nA check of the answer printed: {check}\nIts code: "
  "{code}\n\nEnd with one of these: <<<Return Answer>>> if the answer is "
  "right; <<<Code>>> or <<<Text>>> to have it answer again in this way; or "
  "<<<advice>>> with your advice in place of the word.\n\nReply:\n"
)
_ADVISED = "\nAdvice for this question: {advice}\n"


@dataclasses.dataclass(frozen=True)
class CodeSteerSettings(Settings):
  """The agent `steer`. Defaults follow CodeSteer's published code."""

  rounds: int = setting(
    5,
    "maximum rounds of checking and steering per answer",
    paper="5",
    minimum=0,
    expert=True,
  )
  check_tries: int = setting(
    3,
    "maximum scripts per check; a failed script is followed by another",
    paper="3",
    minimum=1,
    expert=True,
  )
  check_generations: int = setting(
    5,
    "maximum responses per try until one contains a script",
    paper="5",
    minimum=1,
    expert=True,
  )
  report_tokens: int = setting(
    2000,
    "maximum tokens of output shown to another role; a longer check counts as "
    "not working, and a longer answer is cut to its last tokens",
    paper="2,000",
    minimum=1,
    expert=True,
  )
  solver_temperature: float = setting(
    0.0,
    "solver temperature; -1: the same as the other roles",
    paper="0",
    accepts=(lambda v: v == _AS_SAMPLED or v >= 0, "-1, or at least 0"),
    expert=True,
  )


class CodeSteer:
  """Answers prompts by steering. The method `ask` is a `policy.Agent`."""

  def __init__(
    self,
    jobs: SharedJobs,
    prompt_format: str,
    libraries: tuple[str, ...],
    template_arguments: Mapping[str, Any] | None = None,
    templates: Templates | None = None,
    *,
    rounds: int,
    check_tries: int,
    check_generations: int,
    report_tokens: int,
    solver_temperature: float,
  ):
    """Makes the agent; `CodeSteerSettings` describes the numbers.

    Args:
      jobs: runs scripts.
      prompt_format: one of `tasks.questions.prompts.PROMPT_FORMATS`.
      libraries: packages that scripts may import besides the standard library.
      template_arguments: extra arguments of the chat template, by name.
      templates: the user's prompts, with which the solver is asked. None uses
        `prompt_format`, as the requests to the other roles do.
    """
    self._jobs = jobs
    self._libraries = libraries
    self._prompt_format = prompt_format
    self._solver_format: PromptFormat = templates or prompt_format
    self._template_arguments = template_arguments or {}
    self._rounds = rounds
    self._check_tries = check_tries
    self._check_generations = check_generations
    self._report_tokens = report_tokens
    self._solver_temperature = solver_temperature

  async def ask(
    self,
    policy: Policy,
    prompts: Sequence[types.Prompt],
    samples: int,
    prompt_numbers: Sequence[int],
  ) -> Answers:
    """Yields the answers to each prompt.

    Args:
      policy: samples for the guidance model, the solver and the checker.
      prompts: the questions; each prompt's task has a `question`.
      samples: the number of answers per prompt.
      prompt_numbers: the integer that each prompt folds into the random key.
    """
    phases = Phases(
      policy,
      self._jobs,
      self._libraries,
      self._prompt_format,
      self._report_tokens,
      self._template_arguments,
    )
    names = {
      policy.loop.spawn(
        self._converse(
          phases,
          SteeredConversation(prompt, prompt_numbers[index] * samples + sample),
        )
      ): (index, sample)
      for index, prompt in enumerate(prompts)
      for sample in range(samples)
    }
    async for done in as_completed(names):
      yield *names[done], done.result()

  async def _converse(
    self, phases: Phases, conversation: SteeredConversation
  ) -> types.Completion:
    """Returns the accepted answer to a question, or the last one."""
    # A round has one phase for the guidance model, one for the solver, and the
    # checker's.
    checks = self._check_tries * self._check_generations
    await self._choose(phases, conversation, 0)
    await self._answer(phases, conversation, 1)
    for phase in range(2, 2 + self._rounds * (2 + checks), 2 + checks):
      conversation.check = await checker.check(
        phases,
        conversation,
        self._check_tries,
        self._check_generations,
        phase + 2,
      )
      if await self._accepts(phases, conversation, phase):
        break
      await self._answer(phases, conversation, phase + 1)
    return dataclasses.replace(
      conversation.completion, text=conversation.answer
    )

  async def _choose(
    self, phases: Phases, conversation: SteeredConversation, phase: int
  ) -> None:
    """Sets the solution style of the first answer."""
    text = _CHOOSE.format(question=conversation.question)
    choice = await phases.ask(conversation, text, phase)
    answer = code_blocks.find_answer(choice.text) if choice else None
    is_code = answer is not None and answer.casefold() == "code"
    conversation.solution_style = "code" if is_code else "text"

  async def _answer(
    self, phases: Phases, conversation: SteeredConversation, phase: int
  ) -> None:
    """Sets the answer and the output of its script."""
    question = conversation.question
    if conversation.advice:
      question += _ADVISED.format(advice=conversation.advice)
    text = question_prompts.ask(
      question,
      conversation.solution_style,
      self._solver_format,
      phases.chat,
    )
    temperature: float | None = self._solver_temperature
    if temperature == _AS_SAMPLED:
      temperature = None
    answer = await phases.sample(conversation, text, phase, temperature)
    if answer is not None:  # If the prompt is too long, keep the last answer.
      conversation.completion = answer
    result = await phases.run(conversation.completion.text)
    conversation.output = "" if result is None else printed(result)
    conversation.report = phases.shown(conversation.output)

  async def _accepts(
    self, phases: Phases, conversation: SteeredConversation, phase: int
  ) -> bool:
    """Returns whether the answer is accepted; else sets style or advice."""
    block = code_blocks.find_block(conversation.answer)
    text = _STEER.format(
      question=conversation.question,
      answer=phases.end_of(conversation.answer),
      output=conversation.report or "(nothing)",
      check=conversation.check or "(nothing)",
      code=script_complexity.measure(block.code).summary if block else "none",
    )
    response = await phases.ask(conversation, text, phase)
    if response is None:  # The prompt was too long.
      return True
    choice = code_blocks.find_answer(response.text)
    choice = response.text.strip() if choice is None else choice
    if any(words in choice.casefold() for words in _ACCEPTED):
      return True
    if choice.casefold() in ("code", "text"):
      conversation.solution_style, conversation.advice = choice.casefold(), ""
    else:
      conversation.advice = phases.end_of(choice)
    return False
