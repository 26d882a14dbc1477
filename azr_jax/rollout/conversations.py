"""The environments of sequences, and the tool outputs that have come."""

from collections.abc import Iterable, Iterator

from azr_jax.rollout.environment import Environment, ToolOutput
from azr_jax.rollout.sequence import SequenceState


def environments(sequences: Iterable[SequenceState]) -> list[Environment]:
  """Returns the environments of some sequences, each once."""
  every = (sequence.request.environment for sequence in sequences)
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
  every = environments(sequences)
  for environment in every:
    by_id = {
      sequence.id: sequence
      for sequence in sequences
      if sequence.request.environment is environment
    }
    outputs = environment.tool_outputs(wait and len(every) == 1)
    for name, output in outputs.items():
      if name in by_id:  # Others were cancelled.
        yield by_id[name], output


def forget(sequence: SequenceState) -> None:
  """Has the environment drop a conversation."""
  if sequence.request.environment is not None:
    sequence.request.environment.forget(sequence.id)
