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

# How a child ended.
TIMED_OUT, SIGNALLED, NO_REPORT, REPORTED = 0, 1, 2, 3

# Payload bytes, request number, calls to make, timeout of each in seconds.
_REQUEST = struct.Struct(">QQQd")
REQUEST_BYTES = _REQUEST.size
# Payload bytes, request number, seconds, how the child ended.
_REPLY = struct.Struct(">QQdB")


def pack_request(number, timeout_s, code, inputs, entry, forbidden):
  """Returns a request's frame."""
  program = (code, tuple(inputs), entry, tuple(forbidden))
  payload = marshal.dumps(program)
  calls = max(1, len(inputs))
  return _REQUEST.pack(len(payload), number, calls, timeout_s) + payload


def unpack_request(header):
  """Returns (payload bytes, number, calls, timeout of each in seconds)."""
  return _REQUEST.unpack(header)


def unpack_program(file):
  """Returns (code, inputs, entry, forbidden) from a request's file."""
  return marshal.loads(os.pread(file, os.fstat(file).st_size, 0))


def pack_reply(number, seconds, seen, size):
  """Returns a reply's header; `seen` says how the child ended."""
  return _REPLY.pack(size, number, seconds, seen)


def take_replies(buffer):
  """Removes the complete replies from the front of a bytearray.

  Yields (number, seconds, how the child ended, report).
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
  return pack_reply(0, 0.0, REPORTED, len(text)) + text


def unpack_hello(payload):
  """Returns for each sandbox layer, by name, whether it is active."""
  names = payload.decode("ascii").split()
  return {name.lstrip("-"): not name.startswith("-") for name in names}
