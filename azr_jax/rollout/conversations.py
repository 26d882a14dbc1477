"""The tool runners of sequences, and the tool outputs that have come."""

from collections.abc import Iterable, Iterator

from azr_jax.rollout.sequence import SequenceState
from azr_jax.rollout.tool_runner import ToolOutput, ToolRunner


def tool_runners(sequences: Iterable[SequenceState]) -> list[ToolRunner]:
  """Returns the tool runners of some sequences, each once."""
  every = (sequence.request.tool_runner for sequence in sequences)
  return list({id(one): one for one in every if one is not None}.values())


def tool_outputs(
  awaiting: Iterable[SequenceState], wait: bool
) -> Iterator[tuple[SequenceState, ToolOutput]]:
  """Yields the tool outputs that have come, with their sequences.

  Args:
    awaiting: the sequences that await one.
    wait: whether to wait until at least one has come.
  """
  sequences = list(awaiting)
  every = tool_runners(sequences)
  for tool_runner in every:
    by_id = {
      sequence.id: sequence
      for sequence in sequences
      if sequence.request.tool_runner is tool_runner
    }
    outputs = tool_runner.tool_outputs(wait and len(every) == 1)
    for name, output in outputs.items():
      if name in by_id:  # Others were cancelled.
        yield by_id[name], output


def forget(sequence: SequenceState) -> None:
  """Has the tool runner drop a conversation."""
  if sequence.request.tool_runner is not None:
    sequence.request.tool_runner.forget(sequence.id)
