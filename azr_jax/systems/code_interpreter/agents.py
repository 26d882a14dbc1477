"""Agents that answer questions with or without code (R1-CI, section 3.1).

| agent | behaviour | name in the paper |
| --- | --- | --- |
| `text` | reasons in words | All Text |
| `code` | writes one script, whose output is the answer | All Code |
| `code_agent` | reasons, and runs code between its turns | Code Agent |
| `steer` | is steered to text or code (`codesteer.py`) | CodeSteer |
| `conversation` | `code_agent`, but returns all turns as JSON | |

All agents use one model. An agent takes prompts and yields completions like a
policy. The text of a completion contains the answer.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence

from azr_jax import types
from azr_jax.executor import scripts
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.policy import Agent, Answers, Policy
from azr_jax.rollout.tool_runner import split_responses, split_turns
from azr_jax.tools import code_blocks
from azr_jax.tools.python_tool import PythonTool

AGENTS = ("text", "code", "code_agent", "steer")
CONVERSATION = "conversation"
# Appended to a script that printed nothing. Prints the variable that may hold
# the answer.
_PRINT_RESULT = """
for _name in ("result", "Answer", "answer"):
  if _name in globals():
    print(globals()[_name])
    break
"""


def make(
  agent: str,
  tool: PythonTool,
  jobs: SharedJobs,
  steer: Agent,
) -> Agent:
  """Returns an agent by name.

  Args:
    agent: one of `AGENTS`, or `CONVERSATION`.
    tool: runs the code of `code_agent`. Scripts of other agents may import the
      same libraries.
    jobs: runs the scripts of `code`.
    steer: answers as agent `steer`.

  Raises:
    ValueError: the agent is unknown.
  """
  agents: dict[str, Agent] = {
    "text": policy_lib.single_turn,
    "code": _all_code_agent(jobs, tool.libraries),
    "code_agent": _code_agent(tool, _last_response),
    CONVERSATION: _code_agent(tool, _conversation),
    "steer": steer,
  }
  if agent not in agents:
    raise ValueError(f"agent {agent!r}: expected one of {tuple(agents)}")
  return agents[agent]


def _last_response(
  tokenizer: Tokenizer, prompt: types.Prompt, completion: types.Completion
) -> str:
  responses = split_responses(
    completion.token_ids.tolist(), completion.loss_mask.tolist()
  )
  text = tokenizer.decode(responses[-1]) if responses else ""
  return f"{prompt.prefill}{text}" if len(responses) < 2 else text


def _conversation(
  tokenizer: Tokenizer, prompt: types.Prompt, completion: types.Completion
) -> str:
  turns = split_turns(
    completion.token_ids.tolist(), completion.loss_mask.tolist()
  )
  first, *others = [tokenizer.decode(ids) for _, ids in turns] or [""]
  return json.dumps([f"{prompt.prefill}{first}", *others])


def read_conversation(text: str) -> list[str]:
  """Parses the turns from a completion text of agent `CONVERSATION`.

  Turns of the model and of the tool alternate; the model's come first.
  """
  return json.loads(text)


def _code_agent(
  tool: PythonTool,
  text_of: Callable[[Tokenizer, types.Prompt, types.Completion], str],
) -> Agent:
  """Returns the Code Agent, which converses with the tool before it answers.

  It raises ValueError if a prompt's prefill contains a whole script.

  Args:
    tool: runs the code.
    text_of: converts a conversation to the completion's text.
  """

  async def ask(
    policy: Policy,
    prompts: Sequence[types.Prompt],
    samples: int,
    prompt_numbers: Sequence[int],
  ) -> Answers:
    for begun in {prompt.prefill for prompt in prompts}:
      if code_blocks.find_block(begun) is not None:
        raise ValueError(
          f"prefill={begun!r:.80}: expected the start of a script, without its "
          "end, because the model has to write before the script can run"
        )
    async for index, sample, completion in policy.sample(
      prompts, samples, prompt_numbers, tool_runner=tool
    ):
      text = text_of(policy.tokenizer, prompts[index], completion)
      yield index, sample, dataclasses.replace(completion, text=text)

  return ask


def _all_code_agent(jobs: SharedJobs, libraries: tuple[str, ...]) -> Agent:
  """Returns the All Code agent, whose single script prints the answer.

  Args:
    jobs: runs the scripts.
    libraries: packages that scripts may import besides the standard library.
  """

  async def run(code: str) -> str:
    job = scripts.script_job(code, libraries)
    result = await Awaited(jobs.submit(lambda e: e.submit(job)), jobs)
    return str(scripts.read_result(result).output).strip()

  async def answer(completion: types.Completion) -> types.Completion:
    block = code_blocks.find_block(completion.text)
    if block is None:
      return completion
    output = await run(block.code) or await run(block.code + _PRINT_RESULT)
    return _with_output(completion, output)

  async def ask(
    policy: Policy,
    prompts: Sequence[types.Prompt],
    samples: int,
    prompt_numbers: Sequence[int],
  ) -> Answers:
    running = []
    async for index, sample, completion in policy.sample(
      prompts, samples, prompt_numbers
    ):
      begun = prompts[index].begun(completion)
      running.append((index, sample, policy.loop.spawn(answer(begun))))
      while running and running[0][2].done():
        index, sample, done = running.pop(0)
        yield index, sample, done.result()
    for index, sample, done in running:
      yield index, sample, await Awaited(done)

  return ask


def _with_output(completion: types.Completion, output: str) -> types.Completion:
  """Appends a script's output to the text of its completion."""
  answer = code_blocks.find_answer(output)
  answer = output if answer is None else answer
  text = f"{completion.text}\n{output}\n<<<{answer}>>>"
  return dataclasses.replace(completion, text=text)
