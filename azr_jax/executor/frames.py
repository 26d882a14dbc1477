"""What goes over a zygote's two pipes.

A frame is a fixed header, big-endian, and as many bytes as it says. Towards the
zygote the bytes are a program and its inputs, packed by `marshal`: that way
round the sender is trusted, and the child unpacks them with one call. Back
comes what the zygote saw of the child and, if it ended well, its report: ASCII,
which `verdict.py` reads. Nothing that comes back is unpacked.

Used on both sides, so it imports the standard library only.
"""

import marshal
import os
import struct

TIMED_OUT, SIGNALLED, NO_REPORT, REPORTED = 0, 1, 2, 3

# Bytes after it, number, calls to make, timeout of each in seconds.
_REQUEST = struct.Struct(">QQQd")
REQUEST_BYTES = _REQUEST.size
_REPLY = struct.Struct(
  ">QQdB"
)  # Bytes after it, number, seconds, what was seen.


def pack_request(number, timeout_s, code, inputs, entry, forbidden):
  """Returns a request's frame."""
  program = (code, tuple(inputs), entry, tuple(forbidden))
  payload = marshal.dumps(program)
  calls = max(1, len(inputs))
  return _REQUEST.pack(len(payload), number, calls, timeout_s) + payload


def unpack_request(header):
  """Returns (bytes after it, number, calls, timeout of each in seconds)."""
  return _REQUEST.unpack(header)


def unpack_program(file):
  """Returns (code, inputs, entry, forbidden) from a request's file."""
  return marshal.loads(os.pread(file, os.fstat(file).st_size, 0))


def pack_reply(number, seconds, seen, size):
  """Returns a reply's header; `seen` is one of the constants above."""
  return _REPLY.pack(size, number, seconds, seen)


def take_replies(buffer):
  """Takes the complete replies off the front of a bytearray.

  Yields (number, seconds, what was seen, report).
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
  """Returns a zygote's first frame: the names of the walls that stand."""
  names = [name for name, stands in layers.items() if stands]
  missing = ["-" + name for name, stands in layers.items() if not stands]
  text = " ".join(names + missing).encode("ascii")
  return pack_reply(0, 0.0, REPORTED, len(text)) + text


def unpack_hello(payload):
  """Returns the walls by name, and whether each stands."""
  names = payload.decode("ascii").split()
  return {name.lstrip("-"): not name.startswith("-") for name in names}
