"""Ways to answer a question with or without code, by one model (seed 001, 3.1).

| agent | what it does |
| --- | --- |
| `text` | reasons in words (All Text) |
| `code` | writes one script; what that prints is the answer (All Code) |
| `free` | reasons, and runs code on the way (Code Agent) |
| `steer` | is steered between both, round by round (`codesteer.py`) |
| `conversation` | as `free`, for those who want all that was said |

An agent is asked prompts like a policy, and gives completions like one; their
text is what the answer is looked for in.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence

from azr_jax import types
from azr_jax.executor import Executor, scripts
from azr_jax.executor.pending import ResultFuture
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout import code_blocks
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.environment import split_turns
from azr_jax.rollout.policy import Agent, Policy, Stream
from azr_jax.rollout.python_tool import PythonTool
from azr_jax.systems.code_interpreter.codesteer import CodeSteer

AGENTS = ("text", "code", "free", "steer")
CONVERSATION = "conversation"
# Where a script puts its answer that prints none.
_PRINT_RESULT = """
for _name in ("result", "Answer", "answer"):
  if _name in globals():
    print(globals()[_name])
    break
"""


def make(
  agent: str,
  interpreter: PythonTool,
  jobs: SharedJobs,
  style: str,
) -> Agent:
  """What asks an agent.

  Args:
    agent: one of `AGENTS`, or `CONVERSATION`.
    interpreter: runs the code of `free`; the others' may import the same.
    jobs: runs the scripts of `code` and `steer`.
    style: of the prompts of `steer`.

  Raises:
    ValueError: the agent is unknown.
  """
  made: dict[str, Agent] = {
    "text": policy_lib.single_turn,
    "code": ask_code(jobs, interpreter.libraries),
    "free": ask_free(interpreter, _last_reply),
    CONVERSATION: ask_free(interpreter, _conversation),
    "steer": CodeSteer(jobs, style, interpreter.libraries).ask,
  }
  if agent not in made:
    raise ValueError(f"agent {agent!r}: expected one of {tuple(made)}")
  return made[agent]


def _last_reply(tokenizer: Tokenizer, completion: types.Completion) -> str:
  parts = split_turns(
    completion.token_ids.tolist(), completion.loss_mask.tolist()
  )
  own = [ids for is_own, ids in parts if is_own]
  return tokenizer.decode(own[-1]) if own else ""


def _conversation(tokenizer: Tokenizer, completion: types.Completion) -> str:
  parts = split_turns(
    completion.token_ids.tolist(), completion.loss_mask.tolist()
  )
  return json.dumps([tokenizer.decode(ids) for _, ids in parts] or [""])


def read_conversation(text: str) -> list[str]:
  """The parts of a conversation from the text of `CONVERSATION`.

  The first is the model's, the second the interpreter's, and so on.
  """
  return json.loads(text)


def ask_free(
  interpreter: PythonTool,
  tell: Callable[[Tokenizer, types.Completion], str],
) -> Agent:
  """Code Agent: a conversation with the interpreter.

  Args:
    interpreter: runs the code.
    tell: the text of a conversation.
  """

  def ask(
    policy: Policy,
    prompts: Sequence[types.Prompt],
    samples: int,
    numbers: Sequence[int],
  ) -> Stream:
    for index, sample, completion in policy.sample(
      prompts, samples, numbers, environment=interpreter
    ):
      text = tell(policy.tokenizer, completion)
      yield index, sample, dataclasses.replace(completion, text=text)

  return ask


def ask_code(jobs: SharedJobs, libraries: tuple[str, ...]) -> Agent:
  """All Code: one reply, whose script's output is the answer.

  Args:
    jobs: runs the scripts.
    libraries: what they may import beside the standard ones.
  """

  def ask(
    policy: Policy,
    prompts: Sequence[types.Prompt],
    samples: int,
    numbers: Sequence[int],
  ) -> Stream:
    waiting: dict[tuple[int, int], types.Completion] = {}
    silent: dict[tuple[int, int], str] = {}

    def run(name: tuple[int, int], code: str) -> None:
      def start(executor: Executor) -> ResultFuture:
        return executor.submit(scripts.script_job(code, libraries))

      jobs.submit(start, name)

    def heard(wait: bool) -> Stream:
      for name, result in jobs.poll(wait).items():
        output = str(scripts.read_result(result).output).strip()
        code = silent.pop(name, None)
        if not output and code is not None:
          run(name, code + _PRINT_RESULT)  # Once.
          continue
        yield *name, _with_output(waiting.pop(name), output)

    for index, sample, completion in policy.sample(prompts, samples, numbers):
      block = code_blocks.find_block(completion.text)
      if block is None:
        yield index, sample, completion
      else:
        waiting[index, sample] = completion
        silent[index, sample] = block.code
        run((index, sample), block.code)
      yield from heard(wait=False)
    while waiting:
      yield from heard(wait=True)

  return ask


def _with_output(completion: types.Completion, output: str) -> types.Completion:
  """A completion with the answer that its script printed."""
  answer = code_blocks.find_answer(output)
  answer = output if answer is None else answer
  text = f"{completion.text}\n{output}\n<<<{answer}>>>"
  return dataclasses.replace(completion, text=text)
