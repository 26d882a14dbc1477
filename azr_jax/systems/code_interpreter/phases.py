"""Phases that all conversations with CodeSteer go through together.

In a phase, the policy responds to one text for each conversation, in one call
of the sampler, or a script of each runs. A phase has a number, from which its
random key is made, so that an answer does not depend on how many phases the
other conversations need.
"""

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from azr_jax import types
from azr_jax.executor import scripts
from azr_jax.executor.scripts import ScriptResult
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout import code_blocks
from azr_jax.rollout.environment import SequenceId
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.policy import Policy
from azr_jax.systems import collect
from azr_jax.tasks.questions import prompts

# The calls of a policy that have no number count from 0; they stay below this.
_FIRST_CALL = 1 << 20
TOO_LONG = "(its output is too long to be shown)"
_EMPTY = types.Completion(
  np.zeros(0, np.int32),
  np.zeros(0, np.float32),
  np.zeros(0, bool),
  "length",
  "",
)


@dataclasses.dataclass
class Conversation:
  """A question that has no accepted answer yet.

  Attributes:
    prompt: the question; its task has the `request`.
    seed: folded into the random key of all its prompts.
    form: the form of the next answer, `code` or `text`.
    advice: the steerer's advice for the next answer; "": none.
    completion: the last answer; empty if its prompt did not fit.
    output: what the script of the last answer printed.
    report: what the steerer is told of this output.
    check: what the steerer is told of the check of the answer.
  """

  prompt: types.Prompt
  seed: int
  form: str = "text"
  advice: str = ""
  completion: types.Completion = _EMPTY
  output: str = ""
  report: str = ""
  check: str = ""

  @property
  def question(self) -> str:
    """The text of the question."""
    return self.prompt.task.request

  @property
  def answer(self) -> str:
    """The text of the answer, with the output of its script."""
    if not self.output:
      return self.completion.text
    answer = code_blocks.find_answer(self.output) or self.output
    return f"{self.completion.text}\n{self.output}\n<<<{answer}>>>"


# The conversations without an accepted answer, by prompt and sample index.
Conversations: TypeAlias = Mapping[SequenceId, Conversation]


@dataclasses.dataclass(frozen=True)
class Phases:
  """The phases of one call of the agent.

  Attributes:
    policy: samples all responses.
    jobs: runs the scripts.
    libraries: packages that scripts may import beside the standard library.
    prompt_format: one of `tasks.questions.prompts.PROMPT_FORMATS`.
    max_tokens: longest text that another role is shown, tokens.
  """

  policy: Policy
  jobs: SharedJobs
  libraries: tuple[str, ...]
  prompt_format: str
  max_tokens: int

  async def ask(
    self,
    conversations: Conversations,
    texts: Mapping[SequenceId, str],
    number: int,
  ) -> dict[SequenceId, types.Completion]:
    """Returns responses to texts, which the chat template may go around."""
    templated = {
      name: prompts.apply_chat_template(
        text, self.prompt_format, self.policy.tokenizer
      )
      for name, text in texts.items()
    }
    return await self.sample(conversations, templated, number)

  async def sample(
    self,
    conversations: Conversations,
    texts: Mapping[SequenceId, str],
    number: int,
    temperature: float | None = None,
  ) -> dict[SequenceId, types.Completion]:
    """Returns a response to each text that fits the largest prompt bucket.

    Args:
      conversations: those that the texts belong to, and perhaps others.
      texts: the prompt of each conversation.
      number: of the phase; no two phases of a call have the same.
      temperature: divides the logits; None: that of the policy's sampler.
    """
    names = list(texts)
    kept, asked = collect.fitting_prompts(
      self.policy,
      [(texts[name], conversations[name].prompt.task) for name in names],
    )
    names = [names[index] for index in kept]
    samples = self.policy.sample(
      asked,
      1,
      [conversations[name].seed for name in names],
      temperature=temperature,
      call=_FIRST_CALL + number,
    )
    return {names[index]: completion async for index, _, completion in samples}

  async def run(
    self, texts: Mapping[SequenceId, str]
  ) -> dict[SequenceId, ScriptResult]:
    """Returns what the script of each text printed, for texts with one."""
    running = {}
    for name, text in texts.items():
      block = code_blocks.find_block(text)
      if block is not None:
        job = scripts.script_job(block.code, self.libraries)
        running[name] = self.jobs.submit(
          lambda executor, job=job: executor.submit(job)
        )
    return {
      name: scripts.read_result(await Awaited(future, self.jobs))
      for name, future in running.items()
    }

  def shown(self, text: str) -> str:
    """Returns a script's output as another role is shown it."""
    is_long = len(self.policy.tokenizer.encode(text)) > self.max_tokens
    return TOO_LONG if is_long else text

  def end_of(self, text: str) -> str:
    """Returns the last tokens of a text that another role is shown."""
    ids = self.policy.tokenizer.encode(text)
    if len(ids) <= self.max_tokens:
      return text
    return self.policy.tokenizer.decode(ids[-self.max_tokens :])


def printed(result: ScriptResult) -> str:
  """Returns a script's output and errors, or how it ended without any."""
  text = f"{result.output}\n{result.errors}".strip()
  return text or result.status
