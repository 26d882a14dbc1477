"""The messages between the trainer's process and a pool's server process.

A message is a length, followed by its kind and content packed with `marshal`.
Both processes are trusted. Output of programs appears in messages only as text.

| kind | sent to | content |
| --- | --- | --- |
| `START` | server | the pool's settings, libraries and import folders |
| `JOBS` | server | per job: its number and fields |
| `CANCEL` | server | numbers of jobs whose verdicts nobody awaits |
| `STARTED` | trainer | sandbox layers |
| `PROCESSES` | trainer | process ids of the zygotes |
| `VERDICTS` | trainer | per job: its number and its result's fields but `id` |
| `HEARTBEAT` | trainer | None; sent when there is nothing else to send |
| `FAILED` | trainer | the reason why the server is shutting down |
"""

import dataclasses
import marshal
import operator
import struct
from collections.abc import Iterator
from typing import Any

from azr_jax.executor.job import Job, Result

START, JOBS, CANCEL = "start", "jobs", "cancel"
STARTED, PROCESSES, VERDICTS = "started", "processes", "verdicts"
HEARTBEAT, FAILED = "heartbeat", "failed"

_LENGTH = struct.Struct(">Q")
# Return a dataclass's fields as a tuple; `dataclasses.astuple` copies deeply.
job_fields = operator.attrgetter(*(f.name for f in dataclasses.fields(Job)))
result_fields = operator.attrgetter(
  *(field.name for field in dataclasses.fields(Result) if field.name != "id")
)


def pack(kind: str, content: Any) -> bytes:
  """Serializes a message."""
  payload = marshal.dumps((kind, content))
  return _LENGTH.pack(len(payload)) + payload


def take(buffer: bytearray) -> Iterator[tuple[str, Any]]:
  """Removes and yields the complete messages at the front of a buffer."""
  while len(buffer) >= _LENGTH.size:
    (length,) = _LENGTH.unpack_from(buffer)
    end = _LENGTH.size + length
    if len(buffer) < end:
      return
    message = marshal.loads(bytes(buffer[_LENGTH.size : end]))
    del buffer[:end]
    yield message
