"""The phases of a conversation with CodeSteer.

In each phase, the policy responds to a prompt, or a script runs. A policy phase
has an index that is part of its random key. So a response depends neither on
other conversations nor on how many phases came before.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.executor import scripts
from azr_jax.executor.scripts import ScriptResult
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.policy import Policy
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.questions import prompts
from azr_jax.tools import code_blocks

# Call number of phase 0. It is part of the random keys: changing it would
# change all of CodeSteer's samples.
_FIRST_PHASE = 1 << 20
TOO_LONG = "(its output is too long to be shown)"
_EMPTY = types.Completion(
  np.zeros(0, np.int32),
  np.zeros(0, np.float32),
  np.zeros(0, bool),
  "length",
  "",
)


@dataclasses.dataclass
class SteeredConversation:
  """A question and the state of the conversation about it.

  Attributes:
    prompt: the question's prompt; its task has a `question`.
    number: an integer folded into the random key of all prompts.
    solution_style: the style of the next answer, `code` or `text`.
    advice: the guidance model's advice for the next answer; may be empty.
    completion: the last answer; empty if its prompt was too long.
    output: the output of the last answer's script.
    report: the output as shown to the guidance model.
    check: the check's result as shown to the guidance model.
  """

  prompt: types.Prompt
  number: int
  solution_style: str = "text"
  advice: str = ""
  completion: types.Completion = _EMPTY
  output: str = ""
  report: str = ""
  check: str = ""

  @property
  def question(self) -> str:
    """The text of the question."""
    return self.prompt.task.question

  @property
  def answer(self) -> str:
    """The text of the answer, with the output of its script."""
    if not self.output:
      return self.completion.text
    answer = code_blocks.find_answer(self.output) or self.output
    return f"{self.completion.text}\n{self.output}\n<<<{answer}>>>"


@dataclasses.dataclass(frozen=True)
class Phases:
  """Runs the phases of one call of the agent.

  Attributes:
    policy: samples all responses.
    jobs: runs the scripts.
    libraries: packages that scripts may import besides the standard library.
    prompt_format: one of `tasks.questions.prompts.PROMPT_FORMATS`, for
      CodeSteer's own requests.
    max_tokens: the maximum tokens of text shown to another role.
    template_arguments: extra arguments of the chat template, by name.
  """

  policy: Policy
  jobs: SharedJobs
  libraries: tuple[str, ...]
  prompt_format: str
  max_tokens: int
  template_arguments: Mapping[str, Any] = dataclasses.field(
    default_factory=dict
  )

  @property
  def chat(self) -> Chat:
    """The chat template, with its arguments."""
    return Chat(self.policy.tokenizer, self.template_arguments)

  async def ask(
    self, conversation: SteeredConversation, text: str, phase: int
  ) -> types.Completion | None:
    """Samples a response to a text, wrapped in the chat template if any."""
    templated = prompts.apply_chat_template(text, self.prompt_format, self.chat)
    return await self.sample(conversation, templated, phase)

  async def sample(
    self,
    conversation: SteeredConversation,
    text: str,
    phase: int,
    temperature: float | None = None,
  ) -> types.Completion | None:
    """Samples a response; None if the prompt exceeds the largest bucket.

    Args:
      conversation: the conversation, whose number is used.
      text: the prompt.
      phase: the index of the phase, unique in the conversation.
      temperature: the sampling temperature. None uses the policy's.
    """
    prompt = self.policy.prompt(text, conversation.prompt.task)
    if not self.policy.fits(prompt):
      return None
    samples = self.policy.sample(
      [prompt],
      1,
      [conversation.number],
      temperature=temperature,
      call=_FIRST_PHASE + phase,
    )
    [completion] = [completion async for _, _, completion in samples]
    return completion

  async def run(self, text: str) -> ScriptResult | None:
    """Runs the script in a text and returns its result; None without one."""
    block = code_blocks.find_block(text)
    if block is None:
      return None
    job = scripts.script_job(block.code, self.libraries)
    running = self.jobs.submit(lambda executor: executor.submit(job))
    return scripts.read_result(await Awaited(running, self.jobs))

  def shown(self, text: str) -> str:
    """Returns a script's output, or a note if it is too long to show."""
    is_long = len(self.policy.tokenizer.encode(text)) > self.max_tokens
    return TOO_LONG if is_long else text

  def end_of(self, text: str) -> str:
    """Returns a text cut to its last `max_tokens` tokens."""
    ids = self.policy.tokenizer.encode(text)
    if len(ids) <= self.max_tokens:
      return text
    return self.policy.tokenizer.decode(ids[-self.max_tokens :])


def printed(result: ScriptResult) -> str:
  """Returns a script's output and errors, or its status if there are none."""
  text = f"{result.output}\n{result.errors}".strip()
  return text or result.status
