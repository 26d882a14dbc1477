"""CodeSteer: one model steers another between words and code (seed 001, 3.1).

The life of an answer:
1. the steerer sees the question and chooses code or text;
2. the other answers so, and what it wrote is run;
3. a checker writes a script that checks the answer, which is run, too;
4. the steerer sees question, answer, output, check, and how much the code
   computes. It accepts the answer, chooses again, or gives advice; then from 2.

All conversations go through a step together, as one request of the sampler.
Both models are the same one, and everything is sampled as the policy samples.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from azr_jax import types
from azr_jax.executor import scripts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout import code_blocks
from azr_jax.rollout.policy import Policy
from azr_jax.systems.code_interpreter import script_complexity as complexity
from azr_jax.tasks.questions import prompts as question_prompts

ROUNDS = 5
_ACCEPTED = ("return answer", "terminate")
_KEPT = 2000  # Characters of each text that a steerer is shown.
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
_NOTHING = types.Completion(
  np.zeros(0, np.int32),
  np.zeros(0, np.float32),
  np.zeros(0, bool),
  "length",
  "",
)
_ADVISED = "\nAdvice for this question: {advice}\n"


@dataclasses.dataclass
class _Conversation:
  """A question under way: how it is asked next, and what came of it."""

  prompt: types.Prompt
  number: int
  form: str = "text"
  advice: str = ""
  completion: types.Completion = _NOTHING  # Its prompt may be too long.
  output: str = ""
  check: str = ""

  @property
  def question(self) -> str:
    return self.prompt.task.request

  @property
  def answer(self) -> str:
    """The answer's text, with what its script printed."""
    if not self.output:
      return self.completion.text
    answer = code_blocks.find_answer(self.output) or self.output
    return f"{self.completion.text}\n{self.output}\n<<<{answer}>>>"


class CodeSteer:
  """Asks by steering; `ask` is an `policy.Agent`."""

  def __init__(
    self,
    jobs: SharedJobs,
    style: str,
    libraries: tuple[str, ...] = (),
  ):
    """Makes the agent.

    Args:
      jobs: runs scripts.
      style: of prompts, one of `tasks.questions.prompts.PROMPT_FORMATS`.
      libraries: what scripts may import beside the standard ones.
    """
    self._jobs = jobs
    self._libraries = libraries
    self._style = style

  def ask(
    self,
    policy: Policy,
    prompts: Sequence[types.Prompt],
    samples: int,
    numbers: Sequence[int],
  ) -> Iterator[tuple[int, int, types.Completion]]:
    """Yields an answer to each prompt, whose task has the `request`."""
    live = {
      (index, sample): _Conversation(prompt, numbers[index] * samples + sample)
      for index, prompt in enumerate(prompts)
      for sample in range(samples)
    }
    replies = self._sample(
      policy,
      live,
      {
        name: self._framed(policy, _CHOOSE.format(question=one.question))
        for name, one in live.items()
      },
    )
    for name, reply in replies.items():
      chosen = code_blocks.find_answer(reply.text) or ""
      live[name].form = "code" if chosen.casefold() == "code" else "text"
    for round_ in range(ROUNDS):
      self._answer(policy, live)
      accepted = list(live)
      if round_ < ROUNDS - 1:
        self._check(policy, live)
        accepted = self._steer(policy, live)
      for name in accepted:
        one = live.pop(name)
        yield *name, dataclasses.replace(one.completion, text=one.answer)
      if not live:
        return

  def _framed(self, policy: Policy, text: str) -> str:
    return question_prompts.framed(text, self._style, policy.tokenizer)

  def _sample(
    self,
    policy: Policy,
    live: Mapping[tuple[int, int], _Conversation],
    texts: Mapping[tuple[int, int], str],
  ) -> dict[tuple[int, int], types.Completion]:
    """A reply to each text that is not too long."""
    names, asked = [], []
    for name, text in texts.items():
      prompt = policy.prompt(text, live[name].prompt.task)
      if policy.fits(prompt):
        names.append(name)
        asked.append(prompt)
    stream = policy.sample(asked, 1, [live[name].number for name in names])
    return {names[index]: completion for index, _, completion in stream}

  def _answer(
    self, policy: Policy, live: Mapping[tuple[int, int], _Conversation]
  ) -> None:
    texts = {}
    for name, one in live.items():
      question = one.question
      if one.advice:
        question += _ADVISED.format(advice=one.advice)
      texts[name] = question_prompts.ask(
        question, one.form, self._style, policy.tokenizer
      )
    for name, reply in self._sample(policy, live, texts).items():
      live[name].completion = reply
    written = {name: one.completion.text for name, one in live.items()}
    outputs = self._run(written)
    for name, one in live.items():
      one.output = outputs.get(name, "")

  def _check(
    self, policy: Policy, live: Mapping[tuple[int, int], _Conversation]
  ) -> None:
    replies = self._sample(
      policy,
      live,
      {
        name: self._framed(
          policy,
          _CHECK.format(question=one.question, answer=one.answer[-_KEPT:]),
        )
        for name, one in live.items()
      },
    )
    checks = self._run({name: reply.text for name, reply in replies.items()})
    for name, one in live.items():
      one.check = checks.get(name, "")

  def _steer(
    self, policy: Policy, live: Mapping[tuple[int, int], _Conversation]
  ) -> list[tuple[int, int]]:
    """Guides each conversation; returns those that are over."""
    texts = {}
    for name, one in live.items():
      block = code_blocks.find_block(one.answer)
      text = _STEER.format(
        question=one.question,
        answer=one.answer[-_KEPT:],
        output=one.output[-_KEPT:] or "(nothing)",
        check=one.check[-_KEPT:] or "(nothing)",
        code=complexity.measure(block.code).summary if block else "none",
      )
      texts[name] = self._framed(policy, text)
    replies = self._sample(policy, live, texts)
    over = []
    for name, one in live.items():
      reply = replies.get(name)
      advice = code_blocks.find_answer(reply.text) if reply else None
      if advice is None or advice.casefold() in _ACCEPTED:
        over.append(name)
      elif advice.casefold() in ("code", "text"):
        one.form, one.advice = advice.casefold(), ""
      else:
        one.advice = advice
    return over

  def _run(
    self, texts: Mapping[tuple[int, int], str]
  ) -> dict[tuple[int, int], str]:
    """What the scripts of texts print, errors included."""
    for name, text in texts.items():
      block = code_blocks.find_block(text)
      if block is not None:
        job = scripts.script_job(block.code, self._libraries)
        self._jobs.submit(lambda executor, job=job: executor.submit(job), name)
    found: dict[tuple[int, int], str] = {}
    while self._jobs.pending:
      for name, result in self._jobs.poll(wait=True).items():
        read = scripts.read_result(result)
        printed = f"{read.output}\n{read.errors}".strip()
        found[name] = printed or read.status
    return found
