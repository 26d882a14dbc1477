"""The Python tool: runs a model's python blocks (R1-CI, section 3).

Each block runs in the executor as a script of its own; what it prints is the
tool output. The output is tokenised apart from the text before it, so that
every token belongs either to the model or to the tool.
"""

import collections
import dataclasses
import time
from collections.abc import Mapping, Sequence

from azr_jax import types
from azr_jax.config.settings import Settings, setting
from azr_jax.executor import Executor, scripts
from azr_jax.executor.child import libraries
from azr_jax.executor.pool.pending import ResultFuture
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.tool_runner import SequenceId
from azr_jax.tools import code_blocks
from azr_jax.tools.block_finder import BlockFinder

# Stands for what was left out of a long output.
_ELLIPSIS = "\n...\n"


@dataclasses.dataclass(frozen=True)
class PythonToolSettings(Settings):
  """What the model may do with the tool; values of R1-CI."""

  max_calls: int = setting(
    8,
    "scripts of a conversation that run; one more turn follows the last",
    paper="8",
    minimum=0,
  )
  max_output_tokens: int = setting(
    500,
    "longest tool output, tokens; its middle is left out",
    paper="not named; Search-R1 has 500",
    minimum=1,
  )


class PythonTool:
  """A `ToolRunner` for which a closed python block is a tool call."""

  def __init__(
    self,
    settings: PythonToolSettings,
    tokenizer: Tokenizer,
    executor: Executor,
    hosts: Hosts,
    sandbox: ExecutorSettings,
    clock: DecodeClock | None = None,
  ):
    """Makes the tool.

    Args:
      settings: what the model may do with it.
      tokenizer: decodes responses and encodes outputs.
      executor: runs this host's part of the scripts.
      hosts: the processes of the run, over which scripts are distributed.
      sandbox: of the executor: the libraries of scripts, and the time limit
        that a script which exceeds it is told.
      clock: counts the event loop's calls, by which it is decided when
        outputs are taken; None: as soon as they exist.

    Raises:
      ValueError: a library is not installed.
    """
    libraries.check(sandbox.libraries)
    self._settings = settings
    self._sandbox = sandbox
    self._tokenizer = tokenizer
    self._jobs: SharedJobs = SharedJobs(executor, hosts, clock)
    # Per conversation, this has the start of its last response and its finder.
    self._finders: dict[SequenceId, tuple[int, BlockFinder]] = {}
    self._prefix = tokenizer.encode(code_blocks.OUTPUT_PREFIX)
    self._suffix = tokenizer.encode(code_blocks.OUTPUT_SUFFIX)
    self._ellipsis = tokenizer.encode(_ELLIPSIS)
    self._totals: dict[str, float] = collections.defaultdict(float)
    self._busy_since = 0.0

  @property
  def libraries(self) -> tuple[str, ...]:
    """What scripts may import beside the standard ones."""
    return self._sandbox.libraries

  def forget(self, sequence_id: SequenceId) -> None:
    """Drops a conversation that has ended, or was given up."""
    self._finders.pop(sequence_id, None)

  def end_of_response(
    self,
    sequence_id: SequenceId,
    token_ids: Sequence[int],
    response_start: int,
    num_checked: int,
  ) -> int | None:
    """Returns the end of the response's first closed block, or None."""
    start, finder = self._finders.get(sequence_id, (None, None))
    if finder is None or start != response_start:
      finder = BlockFinder(self._decode)
      self._finders[sequence_id] = response_start, finder
      # A conversation of a run that was killed goes on within a response.
      finder.end_of_block(
        token_ids[:num_checked], response_start, response_start
      )
    return finder.end_of_block(token_ids, response_start, num_checked)

  def _decode(self, token_ids: Sequence[int]) -> str:
    return self._tokenizer.decode(list(token_ids))

  def step(
    self,
    sequence_id: SequenceId,
    prompt: types.Prompt,
    responses: Sequence[Sequence[int]],
  ) -> str | None:
    """Starts the script that the last response calls for.

    Returns:
      None if a script was started; "stop" if the response has no tool call,
      "turns" if the conversation has no calls left.
    """
    del prompt
    block = code_blocks.find_tool_call(self._decode(responses[-1]))
    if block is None:
      return "stop"
    if len(responses) > self._settings.max_calls:
      return "turns"
    if not self._jobs.pending:
      self._busy_since = time.monotonic()
    self._totals["calls"] += 1
    code = block.code

    def start(executor: Executor) -> ResultFuture:
      return executor.submit(scripts.script_job(code, self.libraries))

    self._jobs.submit(start, sequence_id)
    return None

  def tool_outputs(self, wait: bool) -> dict[SequenceId, list[int]]:
    """Returns the token ids of the outputs of scripts that have ended.

    Args:
      wait: whether to wait until at least one has ended.
    """
    if not self._jobs.pending:
      return {}
    start = time.monotonic()
    results = self._jobs.poll(wait)
    now = time.monotonic()
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
    """Returns a script's output as token ids; a long one loses its middle."""
    body = self._tokenizer.encode(
      output_text(scripts.read_result(result), self._sandbox.timeout_s)
    )
    limit = self._settings.max_output_tokens
    if len(body) > limit:
      head = limit // 2
      tail = len(body) - (limit - head)
      body = [*body[:head], *self._ellipsis, *body[tail:]]
    return [*self._prefix, *body, *self._suffix]

  def record_occupancy(self, decoding: int, awaiting: int, slots: int) -> None:
    """Adds up how the slots are used, for `metrics`."""
    self._totals["decoding"] += decoding
    self._totals["awaiting"] += awaiting
    self._totals["slots"] += slots

  def state_dict(self) -> dict[str, float]:
    """Returns the counts since the last call of `metrics`, as JSON values."""
    return dict(self._totals)

  def load_state_dict(self, state: Mapping[str, float]) -> None:
    """Restores what `state_dict` returned."""
    self._totals = collections.defaultdict(float, state)

  def metrics(self) -> dict[str, float]:
    """Returns the metrics since the last call of this method.

    `interpreter/calls` counts scripts, and `interpreter/STATUS` those that
    ended with a status. `slots_decoding` is the fraction of slots that decode,
    and `awaiting` the number of conversations that wait for a tool output, in
    proportion to the slots; both are means over the calls of the decode loop.
    `time/interpreter_busy` is the seconds in which a script ran; in
    `time/interpreter_wait` of them the device had nothing to do, and
    `time/interpreter_overlap_fraction` is the fraction in which it had.
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
  """Returns a script's output as the model is shown it.

  Args:
    result: what the script printed, and how it ended.
    timeout_s: the time limit that it had.
  """
  if result.status == "timeout":
    return (
      f"TimeoutExpired: Command 'run.py' timed out after {timeout_s:g} seconds."
    )
  parts = [str(stream).strip() for stream in (result.output, result.errors)]
  return "\n".join(filter(None, parts)) or "(nothing was printed)"
