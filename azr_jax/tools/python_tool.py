"""The Python tool: runs a model's python blocks (R1-CI, section 3).

Each block runs in the executor as a separate script, and what it prints is the
tool output. The output is tokenized separately from the preceding text, so
every token belongs to either the model or the tool.
"""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Int32

from azr_jax import types
from azr_jax.config.settings import Settings, setting
from azr_jax.executor import Executor, scripts
from azr_jax.executor.child import libraries
from azr_jax.executor.pool.pending import ResultFuture
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.tool_runner import SequenceId
from azr_jax.tools import code_blocks
from azr_jax.tools.block_finder import BlockFinder

# Replaces the middle of a long output.
ELLIPSIS = "\n...\n"


@dataclasses.dataclass(frozen=True)
class PythonToolSettings(Settings):
  """Limits of the Python tool, with the values of R1-CI."""

  max_calls: int = setting(
    8,
    "scripts run per conversation; one more turn follows the last",
    paper="8",
    minimum=0,
  )
  max_output_tokens: int = setting(
    500,
    "longest tool output, tokens; longer ones lose their middle",
    paper="not named; Search-R1 has 500",
    minimum=1,
  )


class PythonTool:
  """A `ToolRunner` that treats each closed python block as a tool call."""

  def __init__(
    self,
    tokenizer: Tokenizer,
    executor: Executor,
    hosts: Hosts,
    clock: DecodeClock | None = None,
    now: Callable[[], float] = time.monotonic,
    *,
    max_calls: int,
    max_output_tokens: int,
    importable: tuple[str, ...],
    timeout_s: float,
  ):
    """Creates the tool.

    Args:
      tokenizer: decodes responses and encodes outputs.
      executor: runs this host's share of the scripts.
      hosts: the processes of the run, which share the scripts.
      clock: delays outputs by a fixed number of event loop iterations; None
        takes them as soon as they exist.
      now: returns seconds.
      max_calls: the number of scripts that a conversation may run.
      max_output_tokens: the number of tokens above which an output loses its
        middle.
      importable: the libraries that the executor lets scripts import.
      timeout_s: the executor's time limit, which timeout messages mention.

    Raises:
      ValueError: a library is not installed.
    """
    libraries.check(importable)
    self._importable = importable
    self._timeout_s = timeout_s
    self._max_calls = max_calls
    self._max_output_tokens = max_output_tokens
    self._tokenizer = tokenizer
    self._jobs: SharedJobs = SharedJobs(executor, hosts, clock, now)
    # Start of the last response and its block finder, by conversation.
    self._finders: dict[SequenceId, tuple[int, BlockFinder]] = {}
    self._prefix = tokenizer.encode(code_blocks.OUTPUT_PREFIX)
    self._suffix = tokenizer.encode(code_blocks.OUTPUT_SUFFIX)
    self._ellipsis = tokenizer.encode(ELLIPSIS)
    self._totals: dict[str, float] = collections.defaultdict(float)
    self._now = now
    self._busy_since = 0.0

  @property
  def libraries(self) -> tuple[str, ...]:
    """The libraries that scripts may import besides the standard library."""
    return self._importable

  @property
  def end_marks(self) -> str | None:
    """The marks of fences, because a response ends with one."""
    return "".join(code_blocks.MARKS)

  def forget(self, sequence_id: SequenceId) -> None:
    """Drops a conversation that has ended or was cancelled."""
    self._finders.pop(sequence_id, None)

  def end_of_response(
    self,
    sequence_id: SequenceId,
    prompt: types.Prompt,
    token_ids: Int32[np.ndarray, " S"],
    response_start: int,
    num_checked: int,
  ) -> int | None:
    """Returns the end of the response's first closed block, or None."""
    start, finder = self._finders.get(sequence_id, (None, None))
    if finder is None or start != response_start:
      begun = "" if response_start else prompt.prefill
      finder = BlockFinder(self._decode, begun)
      self._finders[sequence_id] = response_start, finder
    return finder.end_of_block(token_ids, response_start, num_checked)

  def _decode(self, token_ids: Sequence[int]) -> str:
    return self._tokenizer.decode(list(token_ids))

  def step(
    self,
    sequence_id: SequenceId,
    prompt: types.Prompt,
    responses: Sequence[Sequence[int]],
  ) -> str | None:
    """Starts the script in the last response, if there is one.

    Returns:
      None if a script was started, "stop" if the response has no tool call, or
      "turns" if the conversation has no calls left.
    """
    text = self._decode(responses[-1])
    if len(responses) == 1:
      text = f"{prompt.prefill}{text}"
    block = code_blocks.find_tool_call(text)
    if block is None:
      return "stop"
    if len(responses) > self._max_calls:
      return "turns"
    if not self._jobs.pending:
      self._busy_since = self._now()
    self._totals["calls"] += 1
    code = block.code

    def start(executor: Executor) -> ResultFuture:
      return executor.submit(scripts.script_job(code, self.libraries))

    self._jobs.submit(start, sequence_id)
    return None

  def tool_outputs(self, wait: bool) -> dict[SequenceId, list[int]]:
    """Returns the token ids of the outputs of finished scripts.

    Args:
      wait: whether to block until at least one script has finished.
    """
    if not self._jobs.pending:
      return {}
    start = self._now()
    results = self._jobs.poll(wait)
    now = self._now()
    if wait:
      self._totals["wait_s"] += now - start
    if not self._jobs.pending:
      self._totals["busy_s"] += now - self._busy_since
    for result in results.values():
      self._totals[f"status/{result.status}"] += 1
      self._totals["run_s"] += result.seconds
    return {
      sequence_id: self._output_tokens(result)
      for sequence_id, result in results.items()
    }

  def _output_tokens(self, result: scripts.Result) -> list[int]:
    """Returns a script's output as token ids, without the middle if long."""
    body = self._tokenizer.encode(
      output_text(scripts.read_result(result), self._timeout_s)
    )
    limit = self._max_output_tokens
    if len(body) > limit:
      head = limit // 2
      tail = len(body) - (limit - head)
      body = [*body[:head], *self._ellipsis, *body[tail:]]
    return [*self._prefix, *body, *self._suffix]

  def record_occupancy(self, decoding: int, awaiting: int, slots: int) -> None:
    """Accumulates slot use, for `metrics`."""
    self._totals["decoding"] += decoding
    self._totals["awaiting"] += awaiting
    self._totals["slots"] += slots

  def state_dict(self) -> dict[str, float]:
    """Returns the counts since the last `metrics` call, as JSON values."""
    return dict(self._totals)

  def load_state_dict(self, state: Mapping[str, float]) -> None:
    """Restores what `state_dict` returned."""
    self._totals = collections.defaultdict(float, state)

  def metrics(self) -> dict[str, float]:
    """Returns the metrics since the last call of this method.

    `interpreter/calls` counts scripts, and `interpreter/STATUS` those that
    ended with that status. `interpreter/slots_decoding` is the fraction of
    slots that decode, and `interpreter/awaiting` the number of conversations
    that wait for a tool output, divided by the number of slots; both are means
    over decode calls. `time/interpreter_busy` is the seconds in which any
    script ran, and `time/interpreter_wait` those seconds of them in which the
    device was idle. `time/interpreter_overlap_fraction` is the fraction of the
    busy seconds in which the device was not idle.
    """
    totals, self._totals = self._totals, collections.defaultdict(float)
    metrics = {
      f"interpreter/{name.removeprefix('status/')}": value
      for name, value in totals.items()
      if name == "calls" or name.startswith("status/")
    }
    slots = max(totals["slots"], 1.0)
    busy = totals["busy_s"]
    metrics["interpreter/calls"] = totals["calls"]
    metrics["interpreter/slots_decoding"] = totals["decoding"] / slots
    metrics["interpreter/awaiting"] = totals["awaiting"] / slots
    metrics["time/interpreter_programs"] = totals["run_s"]
    metrics["time/interpreter_busy"] = busy
    metrics["time/interpreter_wait"] = totals["wait_s"]
    if busy:
      metrics["time/interpreter_overlap_fraction"] = (
        1.0 - totals["wait_s"] / busy
      )
    return metrics


def output_text(result: scripts.ScriptResult, timeout_s: float) -> str:
  """Returns a script's output as shown to the model.

  Args:
    result: what the script printed and how it ended.
    timeout_s: the script's time limit.
  """
  if result.status == "timeout":
    return (
      f"TimeoutExpired: Command 'run.py' timed out after {timeout_s:g} seconds."
    )
  parts = [str(stream).strip() for stream in (result.output, result.errors)]
  return "\n".join(filter(None, parts)) or "(nothing was printed)"
