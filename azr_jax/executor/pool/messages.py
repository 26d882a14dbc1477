"""The messages between the trainer's process and a pool's server process.

A message is a kind and its content, packed by `marshal` behind its length.
Both processes are trusted: what a program wrote is part of a message as text
only.

| kind | to | content |
| --- | --- | --- |
| `START` | server | the pool's settings, libraries and import folders |
| `JOBS` | server | per job: number, the job's fields |
| `CANCEL` | server | numbers of jobs whose verdicts nobody awaits |
| `STARTED` | trainer | sandbox layers |
| `PROCESSES` | trainer | process ids of the zygotes |
| `VERDICTS` | trainer | per job: number, the result's fields without its id |
| `HEARTBEAT` | trainer | nothing, from time to time |
| `FAILED` | trainer | why the server ends, in words |
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
# The fields of a dataclass as a tuple, without copying them deeply.
job_fields = operator.attrgetter(*(f.name for f in dataclasses.fields(Job)))
result_fields = operator.attrgetter(
  *(field.name for field in dataclasses.fields(Result) if field.name != "id")
)


def pack(kind: str, content: Any) -> bytes:
  """Returns the bytes of a message."""
  payload = marshal.dumps((kind, content))
  return _LENGTH.pack(len(payload)) + payload


def take(buffer: bytearray) -> Iterator[tuple[str, Any]]:
  """Removes the complete messages from a buffer's front; yields each."""
  while len(buffer) >= _LENGTH.size:
    (length,) = _LENGTH.unpack_from(buffer)
    end = _LENGTH.size + length
    if len(buffer) < end:
      return
    message = marshal.loads(bytes(buffer[_LENGTH.size : end]))
    del buffer[:end]
    yield message
