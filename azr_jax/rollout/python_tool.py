"""Answers a model's python blocks with what they print (seed 001, section 3).

The blocks run in the executor, each as a script of its own. A result is made
tokens by itself, apart from the text before it, so that it is known to the
token which were written by the model.
"""

import collections
import dataclasses
import time
from collections.abc import Sequence

from azr_jax.executor import Executor, scripts
from azr_jax.executor.pending import ResultFuture
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.hosts import Hosts
from azr_jax.rollout import code_blocks
from azr_jax.rollout.environment import Name, Outcomes

_GAP = "\n...\n"


@dataclasses.dataclass(frozen=True)
class PythonToolSettings:
  """What the model may do.

  Attributes:
    max_calls: blocks of a conversation that are run; one more reply follows
      the last result, and its block is not run. 0: only text.
    result_tokens: most tokens of a result, without its label; of a longer one
      the beginning and the end are kept.
    timeout_s: how long a script may run, for the message that it ran longer;
      the limit itself is the executor's.
    libraries: what scripts may import beside the standard ones, of
      `executor/libraries.py`.
  """

  max_calls: int
  result_tokens: int
  timeout_s: float
  libraries: tuple[str, ...] = ()


class PythonTool:
  """The other side of conversations with code; see `turns.Turns`."""

  def __init__(
    self,
    settings: PythonToolSettings,
    tokenizer: Tokenizer,
    executor: Executor,
    hosts: Hosts,
  ):
    """Runs blocks on the hosts' executors, each its share of them."""
    self._settings = settings
    self._tokenizer = tokenizer
    self._outcomes: Outcomes = Outcomes(executor, hosts)
    self._label = tokenizer.encode(code_blocks.LABEL)
    self._after = tokenizer.encode(code_blocks.AFTER)
    self._gap = tokenizer.encode(_GAP)
    self._totals: dict[str, float] = collections.defaultdict(float)
    self._busy_since = 0.0

  @property
  def libraries(self) -> tuple[str, ...]:
    """What scripts may import beside the standard ones."""
    return self._settings.libraries

  def begin(self) -> None:
    """Forgets the blocks that are being run."""
    self._outcomes.forget()

  def end_of_reply(
    self, ids: Sequence[int], start: int, seen: int
  ) -> int | None:
    """A reply ends with its first closed block."""
    return code_blocks.end_of_block(ids, start, seen, self._decode)

  def _decode(self, ids: Sequence[int]) -> str:
    return self._tokenizer.decode(list(ids))

  def take(self, name: Name, replies: Sequence[Sequence[int]]) -> str | None:
    """Runs the last reply's block, if it has one and may."""
    block = code_blocks.block_to_run(self._decode(replies[-1]))
    if block is None:
      return "stop"
    if len(replies) > self._settings.max_calls:
      return "turns"
    if not self._outcomes.under_way:
      self._busy_since = time.monotonic()
    self._totals["calls"] += 1
    code = block.code

    def start(executor: Executor) -> ResultFuture:
      return executor.submit(scripts.script_job(code, self.libraries))

    self._outcomes.ask(name, start)
    return None

  def answers(self, wait: bool) -> dict[Name, list[int]]:
    """The tokens of the results that have come."""
    if not self._outcomes.under_way:
      return {}
    start = time.monotonic()
    found = self._outcomes.take(wait)
    now = time.monotonic()
    if wait:
      self._totals["wait_s"] += now - start
    if not self._outcomes.under_way:
      self._totals["busy_s"] += now - self._busy_since
    for result in found.values():
      self._totals[f"status/{result.status}"] += 1
      self._totals["run_s"] += result.seconds
    return {name: self._tokens(result) for name, result in found.items()}

  def _tokens(self, result: scripts.Result) -> list[int]:
    body = self._tokenizer.encode(
      result_text(scripts.read_result(result), self._settings.timeout_s)
    )
    most = self._settings.result_tokens
    if len(body) > most:
      head = most // 2
      body = [*body[:head], *self._gap, *body[len(body) - (most - head) :]]
    return [*self._label, *body, *self._after]

  def observe(self, writing: int, waiting: int, slots: int) -> None:
    """Adds up how the slots are used."""
    self._totals["writing"] += writing
    self._totals["waiting"] += waiting
    self._totals["slots"] += slots

  def metrics(self) -> dict[str, float]:
    """What happened since the last call.

    `slots_writing` and `slots_waiting`: shares of the slots, over the calls of
    the device. `time/interpreter_busy`: seconds with a block under way, in
    `time/interpreter_wait` of which the device had nothing to do;
    `overlap_share` is the rest of them.
    """
    totals, self._totals = self._totals, collections.defaultdict(float)
    found = {
      f"interpreter/{name.removeprefix('status/')}": value
      for name, value in totals.items()
      if name == "calls" or name.startswith("status/")
    }
    slots = max(totals["slots"], 1.0)
    busy = totals["busy_s"]
    found["interpreter/calls"] = totals["calls"]
    found["interpreter/slots_writing"] = totals["writing"] / slots
    found["interpreter/slots_waiting"] = totals["waiting"] / slots
    found["interpreter/program_seconds"] = totals["run_s"]
    found["time/interpreter_busy"] = busy
    found["time/interpreter_wait"] = totals["wait_s"]
    if busy:
      found["interpreter/overlap_share"] = 1.0 - totals["wait_s"] / busy
    return found


def result_text(result: scripts.ScriptResult, timeout_s: float) -> str:
  """A script's result, as the model is shown it."""
  if result.status == "timeout":
    return (
      f"TimeoutExpired: Command 'run.py' timed out after {timeout_s:g} seconds."
    )
  parts = [str(stream).strip() for stream in (result.output, result.errors)]
  return "\n".join(filter(None, parts)) or "(nothing was printed)"
