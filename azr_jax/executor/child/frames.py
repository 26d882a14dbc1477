"""Packs and reads the frames that go over a zygote's two pipes.

A frame is a fixed big-endian header and the number of bytes that it states. In
a request, the bytes are a program and its inputs, packed by `marshal`: the
sender is trusted, and the child unpacks them with one call. In a reply, the
header says how the child ended, and the bytes are its ASCII report, which
`verdict.py` reads. Nothing in a reply is ever unmarshalled.

Both sides use this module, so it imports the standard library only.
"""

import marshal
import os
import struct

# How a child ended: it was killed at a limit, or ended otherwise.
CALL_TIMED_OUT, RUN_TIMED_OUT, SLEPT, SIGNALLED, NO_REPORT, REPORTED = range(6)
LIMITS = (CALL_TIMED_OUT, RUN_TIMED_OUT, SLEPT)
# A reply without a request, which says that the zygote is alive.
HEARTBEAT = 6

# Payload bytes, request number, limits of a call, a run, and sleep in seconds.
_REQUEST = struct.Struct(">QQddd")
REQUEST_BYTES = _REQUEST.size
# Payload bytes, request number, wall clock, CPU seconds, seconds of sleep, how
# the child ended.
_REPLY = struct.Struct(">QQdddB")


def pack_request(
  number, limits, code, inputs, entry, forbidden, may_share, shift_s
):
  """Returns a request's frame.

  Args:
    number: the request's number.
    limits: CPU seconds of a call and of all calls, and seconds of sleep.
    code, inputs, entry, forbidden: as in `job.Job`.
    may_share: whether the calls may share a process whatever the program does.
    shift_s: by how many seconds the clocks are ahead; None leaves them as they
      are.
  """
  program = (code, tuple(inputs), entry, tuple(forbidden), may_share, shift_s)
  payload = marshal.dumps(program)
  return _REQUEST.pack(len(payload), number, *limits) + payload


def unpack_request(header):
  """Returns (payload bytes, number, call_s, run_s, sleep_s)."""
  return _REQUEST.unpack(header)


def unpack_program(file):
  """Returns the program, as `pack_request` has it, from a request's file.

  These are code, inputs, entry, forbidden, may_share, and shift_s.
  """
  return marshal.loads(os.pread(file, os.lseek(file, 0, os.SEEK_END), 0))


def pack_reply(number, seconds, cpu_s, slept_s, ending, size):
  """Returns a reply's header; `ending` says how the child ended."""
  return _REPLY.pack(size, number, seconds, cpu_s, slept_s, ending)


def pack_heartbeat():
  """Returns the frame that says that the zygote is alive."""
  return pack_reply(0, 0.0, 0.0, 0.0, HEARTBEAT, 0)


def take_replies(buffer):
  """Removes the complete replies from the front of a bytearray.

  Yields (number, wall clock in seconds, CPU seconds, seconds of sleep, how the
  child ended, report).
  """
  while len(buffer) >= _REPLY.size:
    size, *fields = _REPLY.unpack_from(buffer)
    end = _REPLY.size + size
    if len(buffer) < end:
      return
    report = bytes(buffer[_REPLY.size : end])
    del buffer[:end]
    yield *fields, report


def pack_hello(layers):
  """Returns a zygote's first frame: layer names, `-` before inactive ones."""
  active = [name for name, is_active in layers.items() if is_active]
  missing = ["-" + name for name, is_active in layers.items() if not is_active]
  text = " ".join(active + missing).encode("ascii")
  return pack_reply(0, 0.0, 0.0, 0.0, REPORTED, len(text)) + text


def unpack_hello(payload):
  """Returns for each sandbox layer, by name, whether it is active."""
  names = payload.decode("ascii").split()
  return {name.lstrip("-"): not name.startswith("-") for name in names}
