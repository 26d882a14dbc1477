"""CodeSteer: one model steers another between text and code (R1-CI, 3.1).

The life of an answer:
1. the steerer reads the question and chooses code or text;
2. the solver answers in this form, and its script runs;
3. a checker writes a script that checks the answer, and this script runs;
4. the steerer reads question, answer, output, check, and the complexity of the
   code. It accepts the answer, or chooses a form or gives advice for another
   round from 2.

All conversations take each of these steps in one call of the sampler. The
policy is steerer, solver and checker.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from azr_jax import types
from azr_jax.executor import scripts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout import code_blocks
from azr_jax.rollout.environment import SequenceId
from azr_jax.rollout.policy import Policy, Stream
from azr_jax.systems import collect
from azr_jax.systems.code_interpreter import script_complexity
from azr_jax.tasks.questions import prompts as question_prompts

ROUNDS = 5
# The steerer's choices that accept an answer.
_ACCEPTED = ("return answer", "terminate")
# The steerer and the checker are shown the last characters of a text.
_SHOWN_CHARS = 2000
_CHOOSE = (
  "A solver can answer the question below by writing and running Python, or by "
  "reasoning in words. Think about which of them is less likely to go wrong. "
  "End with <<<Code>>> or <<<Text>>>.\n\nQuestion: {question}\n\nReply:\n"
)
_CHECK = (
  "Write one Python script that checks the answer below, by other means than "
  "those it was found by if there are any, and prints whether it is right and "
  "why. Open it with ```python and close it with ```.\n\n"
  "Question: {question}\n\nAnswer: {answer}\n\nReply:\n"
)
_STEER = (
  "You guide a solver, who can write Python or reason in words, to the right "
  "answer.\nQuestion: {question}\n\nThe solver's answer:\n{answer}\n\nWhat its "
  "code printed: {output}\nA check of the answer printed: {check}\nIts code: "
  "{code}\n\nEnd with one of these: <<<Return Answer>>> if the answer is "
  "right; <<<Code>>> or <<<Text>>> to have it answer anew in this way; or "
  "<<<advice>>> with your advice in place of the word.\n\nReply:\n"
)
_EMPTY = types.Completion(
  np.zeros(0, np.int32),
  np.zeros(0, np.float32),
  np.zeros(0, bool),
  "length",
  "",
)
_ADVISED = "\nAdvice for this question: {advice}\n"


@dataclasses.dataclass
class _Conversation:
  """A question that has no accepted answer yet.

  Attributes:
    prompt: the question; its task has the `request`.
    seed: folded into the random key of all its prompts.
    form: the form of the next answer, `code` or `text`.
    advice: the steerer's advice for the next answer; "": none.
    completion: the last answer; empty if its prompt did not fit.
    output: what the script of the last answer printed.
    check: what the script of the checker printed.
  """

  prompt: types.Prompt
  seed: int
  form: str = "text"
  advice: str = ""
  completion: types.Completion = _EMPTY
  output: str = ""
  check: str = ""

  @property
  def question(self) -> str:
    return self.prompt.task.request

  @property
  def answer(self) -> str:
    """The text of the answer, with the output of its script."""
    if not self.output:
      return self.completion.text
    answer = code_blocks.find_answer(self.output) or self.output
    return f"{self.completion.text}\n{self.output}\n<<<{answer}>>>"


# The conversations without an accepted answer, by prompt and sample index.
_Conversations: TypeAlias = Mapping[SequenceId, _Conversation]


class CodeSteer:
  """Answers prompts by steering; its method `ask` is a `policy.Agent`."""

  def __init__(
    self,
    jobs: SharedJobs,
    prompt_format: str,
    libraries: tuple[str, ...] = (),
  ):
    """Makes the agent.

    Args:
      jobs: runs scripts.
      prompt_format: one of `tasks.questions.prompts.PROMPT_FORMATS`.
      libraries: packages that scripts may import beside the standard library.
    """
    self._jobs = jobs
    self._libraries = libraries
    self._prompt_format = prompt_format

  def ask(
    self,
    policy: Policy,
    prompts: Sequence[types.Prompt],
    samples: int,
    prompt_seeds: Sequence[int],
  ) -> Stream:
    """Yields the answers to each prompt.

    Args:
      policy: samples for steerer, solver and checker.
      prompts: the questions; the task of each has the `request`.
      samples: number of answers per prompt.
      prompt_seeds: the integer that each prompt folds into the random key.
    """
    conversations = {
      (index, sample): _Conversation(
        prompt, prompt_seeds[index] * samples + sample
      )
      for index, prompt in enumerate(prompts)
      for sample in range(samples)
    }
    choices = self._sample(
      policy,
      conversations,
      {
        sequence_id: self._apply_chat_template(
          policy, _CHOOSE.format(question=conversation.question)
        )
        for sequence_id, conversation in conversations.items()
      },
    )
    for sequence_id, choice in choices.items():
      form = code_blocks.find_answer(choice.text) or ""
      is_code = form.casefold() == "code"
      conversations[sequence_id].form = "code" if is_code else "text"
    for round_index in range(ROUNDS):
      self._answer(policy, conversations)
      accepted = list(conversations)
      if round_index < ROUNDS - 1:
        self._check(policy, conversations)
        accepted = self._steer(policy, conversations)
      for sequence_id in accepted:
        conversation = conversations.pop(sequence_id)
        completion = dataclasses.replace(
          conversation.completion, text=conversation.answer
        )
        yield *sequence_id, completion
      if not conversations:
        return

  def _apply_chat_template(self, policy: Policy, text: str) -> str:
    return question_prompts.apply_chat_template(
      text, self._prompt_format, policy.tokenizer
    )

  def _sample(
    self,
    policy: Policy,
    conversations: _Conversations,
    texts: Mapping[SequenceId, str],
  ) -> dict[SequenceId, types.Completion]:
    """Returns a response to each text that fits the largest prompt bucket."""
    names = list(texts)
    kept, prompts = collect.fitting_prompts(
      policy, [(texts[name], conversations[name].prompt.task) for name in names]
    )
    names = [names[index] for index in kept]
    stream = policy.sample(
      prompts, 1, [conversations[name].seed for name in names]
    )
    return {names[index]: completion for index, _, completion in stream}

  def _answer(self, policy: Policy, conversations: _Conversations) -> None:
    """Sets each answer and the output of its script."""
    texts = {}
    for sequence_id, conversation in conversations.items():
      question = conversation.question
      if conversation.advice:
        question += _ADVISED.format(advice=conversation.advice)
      texts[sequence_id] = question_prompts.ask(
        question, conversation.form, self._prompt_format, policy.tokenizer
      )
    for sequence_id, answer in self._sample(
      policy, conversations, texts
    ).items():
      conversations[sequence_id].completion = answer
    outputs = self._run(
      {
        name: conversation.completion.text
        for name, conversation in conversations.items()
      }
    )
    for sequence_id, conversation in conversations.items():
      conversation.output = outputs.get(sequence_id, "")

  def _check(self, policy: Policy, conversations: _Conversations) -> None:
    """Sets the output of the checker's script for each answer."""
    checks = self._sample(
      policy,
      conversations,
      {
        sequence_id: self._apply_chat_template(
          policy,
          _CHECK.format(
            question=conversation.question,
            answer=conversation.answer[-_SHOWN_CHARS:],
          ),
        )
        for sequence_id, conversation in conversations.items()
      },
    )
    outputs = self._run({name: check.text for name, check in checks.items()})
    for sequence_id, conversation in conversations.items():
      conversation.check = outputs.get(sequence_id, "")

  def _steer(
    self, policy: Policy, conversations: _Conversations
  ) -> list[SequenceId]:
    """Sets form and advice of the next answers; returns the accepted ones."""
    texts = {}
    for sequence_id, conversation in conversations.items():
      block = code_blocks.find_block(conversation.answer)
      text = _STEER.format(
        question=conversation.question,
        answer=conversation.answer[-_SHOWN_CHARS:],
        output=conversation.output[-_SHOWN_CHARS:] or "(nothing)",
        check=conversation.check[-_SHOWN_CHARS:] or "(nothing)",
        code=script_complexity.measure(block.code).summary if block else "none",
      )
      texts[sequence_id] = self._apply_chat_template(policy, text)
    responses = self._sample(policy, conversations, texts)
    accepted = []
    for sequence_id, conversation in conversations.items():
      response = responses.get(sequence_id)
      choice = code_blocks.find_answer(response.text) if response else None
      if choice is None or choice.casefold() in _ACCEPTED:
        accepted.append(sequence_id)
      elif choice.casefold() in ("code", "text"):
        conversation.form, conversation.advice = choice.casefold(), ""
      else:
        conversation.advice = choice
    return accepted

  def _run(self, texts: Mapping[SequenceId, str]) -> dict[SequenceId, str]:
    """Returns the output and the errors of each text's script."""
    for sequence_id, text in texts.items():
      block = code_blocks.find_block(text)
      if block is not None:
        job = scripts.script_job(block.code, self._libraries)
        self._jobs.submit(
          lambda executor, job=job: executor.submit(job), sequence_id
        )
    outputs: dict[SequenceId, str] = {}
    while self._jobs.pending:
      for sequence_id, result in self._jobs.poll(wait=True).items():
        script = scripts.read_result(result)
        printed = f"{script.output}\n{script.errors}".strip()
        outputs[sequence_id] = printed or script.status
    return outputs
