"""CodeSteer: one model steers another between text and code (R1-CI, 3.1).

The life of an answer:
1. the guidance model reads the question and chooses code or text;
2. the solver answers in this solution style, and its script runs;
3. a checker writes a script that checks the answer, and this script runs
   (`checker.py`);
4. the guidance model reads question, answer, output, check, and the complexity
   of the code. It accepts the answer, or chooses a solution style or gives
   advice for another answer, up to `rounds` times; the answer after the last
   round is final.

No conversation waits for another one. The policy is guidance model, solver and
checker.

Differences from CodeSteer (arXiv 2502.04350): a role is shown the question and
the last answer, not the whole conversation before; the guidance model's first
choice is text unless it says code; scripts have the executor's time limit, not
10 s. Checker and guidance model sample at the temperature of the others,
because a second try at temperature 0 would be the first one again.
"""

import dataclasses
from collections.abc import Sequence

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
from azr_jax.tasks.chats import TemplateSettings
from azr_jax.tasks.questions import prompts as question_prompts
from azr_jax.tools import code_blocks

# The temperature that stands for that of the other roles.
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
  "right; <<<Code>>> or <<<Text>>> to have it answer anew in this way; or "
  "<<<advice>>> with your advice in place of the word.\n\nReply:\n"
)
_ADVISED = "\nAdvice for this question: {advice}\n"


@dataclasses.dataclass(frozen=True)
class CodeSteerSettings(Settings):
  """The agent `steer`: values of CodeSteer's published code."""

  rounds: int = setting(
    5,
    "times that an answer is checked and steered",
    paper="5",
    minimum=0,
    expert=True,
  )
  check_tries: int = setting(
    3,
    "scripts that check an answer; another one follows a script that fails",
    paper="3",
    minimum=1,
    expert=True,
  )
  check_generations: int = setting(
    5,
    "responses of a try, until one has a script",
    paper="5",
    minimum=1,
    expert=True,
  )
  report_tokens: int = setting(
    2000,
    "longest output that is shown to another role, tokens; a longer check is "
    "reported as not working, and of an answer the last tokens are shown",
    paper="2,000",
    minimum=1,
    expert=True,
  )
  solver_temperature: float = setting(
    0.0,
    "temperature of the solver; -1: that of the other roles",
    paper="0",
    accepts=(lambda v: v == _AS_SAMPLED or v >= 0, "-1, or at least 0"),
    expert=True,
  )


class CodeSteer:
  """Answers prompts by steering; its method `ask` is a `policy.Agent`."""

  def __init__(
    self,
    jobs: SharedJobs,
    prompt_format: str,
    libraries: tuple[str, ...],
    settings: CodeSteerSettings,
    template: TemplateSettings | None = None,
  ):
    """Makes the agent.

    Args:
      jobs: runs scripts.
      prompt_format: one of `tasks.questions.prompts.PROMPT_FORMATS`.
      libraries: packages that scripts may import beside the standard library.
      settings: how often and how it checks.
      template: arguments of the chat template; None: there are none.
    """
    self._jobs = jobs
    self._libraries = libraries
    self._prompt_format = prompt_format
    self._settings = settings
    self._template = template or TemplateSettings()

  async def ask(
    self,
    policy: Policy,
    prompts: Sequence[types.Prompt],
    samples: int,
    prompt_seeds: Sequence[int],
  ) -> Answers:
    """Yields the answers to each prompt.

    Args:
      policy: samples for guidance model, solver and checker.
      prompts: the questions; the task of each has the `question`.
      samples: number of answers per prompt.
      prompt_seeds: the integer that each prompt folds into the random key.
    """
    phases = Phases(
      policy,
      self._jobs,
      self._libraries,
      self._prompt_format,
      self._settings.report_tokens,
      self._template,
    )
    names = {
      policy.loop.spawn(
        self._converse(
          phases,
          SteeredConversation(prompt, prompt_seeds[index] * samples + sample),
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
    settings = self._settings
    # A round has a phase each for guidance model and solver, and the checker's.
    checks = settings.check_tries * settings.check_generations
    await self._choose(phases, conversation, 0)
    await self._answer(phases, conversation, 1)
    for phase in range(2, 2 + settings.rounds * (2 + checks), 2 + checks):
      conversation.check = await checker.check(
        phases,
        conversation,
        settings.check_tries,
        settings.check_generations,
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
      self._prompt_format,
      phases.chat,
    )
    temperature: float | None = self._settings.solver_temperature
    if temperature == _AS_SAMPLED:
      temperature = None
    answer = await phases.sample(conversation, text, phase, temperature)
    if answer is not None:  # Its prompt fitted; else the one before stays.
      conversation.completion = answer
    result = await phases.run(conversation.completion.text)
    conversation.output = "" if result is None else printed(result)
    conversation.report = phases.shown(conversation.output)

  async def _accepts(
    self, phases: Phases, conversation: SteeredConversation, phase: int
  ) -> bool:
    """Returns whether the answer is accepted; if not, sets style and advice."""
    block = code_blocks.find_block(conversation.answer)
    text = _STEER.format(
      question=conversation.question,
      answer=phases.end_of(conversation.answer),
      output=conversation.report or "(nothing)",
      check=conversation.check or "(nothing)",
      code=script_complexity.measure(block.code).summary if block else "none",
    )
    response = await phases.ask(conversation, text, phase)
    if response is None:  # Its text did not fit.
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
