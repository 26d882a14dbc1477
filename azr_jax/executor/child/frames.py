"""Packs and parses the frames on a zygote's two pipes.

A frame is a fixed-size big-endian header, which contains the payload's length,
and the payload. A request's payload is a program and its inputs, packed with
`marshal`: the sender is trusted, and the child unpacks them with one call. A
reply's header says how the child ended, and its payload is the child's ASCII
report, which `verdict.py` parses. Nothing in a reply is ever unmarshalled.

Both sides use this module, so it imports only the standard library.
"""

import marshal
import os
import struct
from collections.abc import Iterator, Sequence

# How a child ended: killed at a limit, or otherwise.
CALL_TIMED_OUT, RUN_TIMED_OUT, SLEPT, SIGNALLED, NO_REPORT, REPORTED = range(6)
LIMITS = (CALL_TIMED_OUT, RUN_TIMED_OUT, SLEPT)
# A reply without a request, sent to show that the zygote is alive.
HEARTBEAT = 6

# Payload bytes, request number, limits of a call, a run, and sleep in seconds.
_REQUEST = struct.Struct(">QQddd")
REQUEST_BYTES = _REQUEST.size
# Payload bytes, request number, wall-clock seconds, CPU seconds, seconds of
# sleep, how the child ended.
_REPLY = struct.Struct(">QQdddB")

# The arguments of `pack_request` from `code` on.
Program = tuple[str, tuple[str, ...], str, tuple[str, ...], bool, int | None]
# Request number, wall-clock seconds, CPU seconds, seconds of sleep, how the
# child ended, report.
Reply = tuple[int, float, float, float, int, bytes]


def pack_request(
  number: int,
  limits: Sequence[float],
  code: str,
  inputs: Sequence[str],
  entry: str,
  forbidden: Sequence[str],
  may_share: bool,
  shift_s: int | None,
) -> bytes:
  """Returns a request's frame.

  Args:
    number: the request's number.
    limits: CPU seconds per call and of all calls, and seconds of sleep.
    code, inputs, entry, forbidden: as in `job.Job`.
    may_share: whether the calls may share a process without a check of the
      program.
    shift_s: how many seconds to set the clocks ahead; None if they are not
      replaced.
  """
  program = (code, tuple(inputs), entry, tuple(forbidden), may_share, shift_s)
  payload = marshal.dumps(program)
  return _REQUEST.pack(len(payload), number, *limits) + payload


def unpack_request(header: bytes) -> tuple[int, int, float, float, float]:
  """Returns (payload bytes, number, call_s, run_s, sleep_s)."""
  return _REQUEST.unpack(header)


def unpack_program(file: int) -> Program:
  """Reads the payload of `pack_request` from a file."""
  return marshal.loads(os.pread(file, os.lseek(file, 0, os.SEEK_END), 0))


def pack_reply(
  number: int,
  seconds: float,
  cpu_s: float,
  slept_s: float,
  ending: int,
  size: int,
) -> bytes:
  """Returns the header of a reply with a report of `size` bytes."""
  return _REPLY.pack(size, number, seconds, cpu_s, slept_s, ending)


def pack_heartbeat() -> bytes:
  """Returns a heartbeat's frame."""
  return pack_reply(0, 0.0, 0.0, 0.0, HEARTBEAT, 0)


def take_replies(buffer: bytearray) -> Iterator[Reply]:
  """Removes and yields the complete replies at the front of a bytearray."""
  while len(buffer) >= _REPLY.size:
    size, number, seconds, cpu_s, slept_s, ending = _REPLY.unpack_from(buffer)
    end = _REPLY.size + size
    if len(buffer) < end:
      return
    report = bytes(buffer[_REPLY.size : end])
    del buffer[:end]
    yield number, seconds, cpu_s, slept_s, ending, report


def pack_hello(layers: dict[str, bool]) -> bytes:
  """Returns a zygote's first frame: layer names, inactive ones after a `-`."""
  active = [name for name, is_active in layers.items() if is_active]
  missing = ["-" + name for name, is_active in layers.items() if not is_active]
  text = " ".join(active + missing).encode("ascii")
  return pack_reply(0, 0.0, 0.0, 0.0, REPORTED, len(text)) + text


def unpack_hello(payload: bytes) -> dict[str, bool]:
  """Returns whether each sandbox layer is active, by name."""
  names = payload.decode("ascii").split()
  return {name.lstrip("-"): not name.startswith("-") for name in names}
