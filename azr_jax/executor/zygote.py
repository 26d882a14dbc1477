"""The zygote: a slim process that forks one child per program.

Started by exec with `python -s -S -P zygote.py SECCOMP`, never by fork from
a process that holds JAX. The life of a request:
1. it arrives on the request pipe as one length-prefixed JSON frame;
2. a child is forked, walled in, and runs the program on all its inputs;
3. the zygote waits on the child's pipe and on its clock, kills it at the
   deadline, and reaps it;
4. the verdict goes out on the reply pipe.

It holds no golds, runs no model code itself, and ends when the request pipe
closes.
"""

import gc
import json
import os
import select
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# What programs may import: with files denied, only loaded modules exist.
import abc  # noqa: F401
import array  # noqa: F401
import bisect  # noqa: F401
import cmath  # noqa: F401
import codecs
import collections.abc  # noqa: F401
import contextlib  # noqa: F401
import copy  # noqa: F401
import dataclasses  # noqa: F401
import decimal  # noqa: F401
import enum  # noqa: F401
import fractions  # noqa: F401
import functools  # noqa: F401
import heapq  # noqa: F401
import itertools  # noqa: F401
import math  # noqa: F401
import numbers  # noqa: F401
import operator  # noqa: F401
import queue  # noqa: F401
import random  # noqa: F401
import re  # noqa: F401
import statistics  # noqa: F401
import string  # noqa: F401
import textwrap  # noqa: F401
import types  # noqa: F401
import typing  # noqa: F401

import kernel
import program

# Codecs are modules too, loaded when first looked up.
CODECS = (
  "ascii latin-1 utf-7 utf-8 utf-8-sig utf-16 utf-16-le utf-16-be utf-32 "
  "cp437 cp1251 cp1252 iso8859-2 iso8859-15 koi8-r shift_jis euc_jp gb2312 "
  "gbk gb18030 big5 euc_kr idna punycode unicode_escape raw_unicode_escape "
  "hex base64 rot13"
).split()
MAX_FRAME_BYTES = 8 + program.MAX_REPORT_BYTES


class Child:
  """A running program and what it has written so far."""

  def __init__(self, request, pid, pipe, process):
    self.request = request
    self.pid = pid
    self.pipe = pipe
    self.process = process
    self.start = time.monotonic()
    self.deadline = self.start + request["timeout_s"]
    self.written = bytearray()
    self.status = None
    self.timed_out = False

  def kill(self):
    """Ends the child; it cannot have forked."""
    os.kill(self.pid, signal.SIGKILL)


def serve(requests, replies, seccomp):
  """Serves until the request pipe closes."""
  os.set_blocking(requests, False)
  os.set_blocking(replies, False)
  incoming, outgoing, children = bytearray(), bytearray(), []
  poll = select.poll()
  poll.register(requests, select.POLLIN)
  waiting_to_write = False
  while True:
    now = time.monotonic()
    soonest = min((child.deadline for child in children), default=None)
    wait = None if soonest is None else max(0, (soonest - now) * 1000) + 1
    ready = {descriptor for descriptor, _ in poll.poll(wait)}
    if requests in ready:
      data = _read(requests)
      if data == b"":
        _end(children)
        return
      incoming += data or b""
      for request in _frames(incoming):
        child = _fork(request, requests, replies, seccomp, children)
        children.append(child)
        poll.register(child.pipe, select.POLLIN)
        poll.register(child.process, select.POLLIN)
    for child in list(children):
      _attend(child, ready, poll)
      if child.status is not None:
        children.remove(child)
        reply = json.dumps(_verdict(child)).encode("ascii")
        outgoing += len(reply).to_bytes(8, "big") + reply
    if outgoing:
      del outgoing[: _write(replies, outgoing)]
    if bool(outgoing) != waiting_to_write:
      waiting_to_write = bool(outgoing)
      if waiting_to_write:
        poll.register(replies, select.POLLOUT)
      else:
        poll.unregister(replies)


def _read(descriptor):
  try:
    return os.read(descriptor, 1 << 16)
  except BlockingIOError:
    return None


def _write(descriptor, data):
  try:
    return os.write(descriptor, data)
  except BlockingIOError:
    return 0


def _frames(buffer):
  """Takes the complete frames off the front of a buffer."""
  while len(buffer) >= 8:
    length = int.from_bytes(buffer[:8], "big")
    if len(buffer) < 8 + length:
      return
    frame = bytes(buffer[8 : 8 + length])
    del buffer[: 8 + length]
    yield json.loads(frame)


def _fork(request, requests, replies, seccomp, children):
  reading, writing = os.pipe()
  pid = os.fork()
  if pid == 0:
    _become_program(request, writing, seccomp)
  os.close(writing)
  os.set_blocking(reading, False)
  return Child(request, pid, reading, os.pidfd_open(pid))


def _become_program(request, writing, seccomp):
  """Runs in the child: keeps /dev/null and one pipe, then the program."""
  try:
    os.closerange(3, writing)
    os.closerange(writing + 1, 4096)
    seconds = int(request["timeout_s"]) + 2
    kernel.enter_child(request["memory_mb"] << 20, seconds, seccomp)
    program.run(request, writing)
  finally:
    os._exit(70)


def _attend(child, ready, poll):
  """Takes a child's output, its end, or its time."""
  if child.pipe in ready:
    _take_output(child)
  ended = child.process in ready
  if not ended and time.monotonic() < child.deadline:
    return
  if not ended:
    child.timed_out = True
    child.kill()
  poll.unregister(child.pipe)
  poll.unregister(child.process)
  _, child.status = os.waitpid(child.pid, 0)
  _take_output(child)
  os.close(child.pipe)
  os.close(child.process)


def _take_output(child):
  while True:
    data = _read(child.pipe)
    if not data:
      return
    child.written += data
    if len(child.written) > MAX_FRAME_BYTES:
      child.kill()
      return


def _verdict(child):
  """The parent's view first: clock, exit, then the one complete frame."""
  reply = {
    "id": child.request["id"],
    "status": "error",
    "outputs": [],
    "error": None,
    "seconds": time.monotonic() - child.start,
  }
  if child.timed_out:
    return reply | {"status": "timeout", "error": "TimeoutError"}
  if os.WIFSIGNALED(child.status):
    number = os.WTERMSIG(child.status)
    if number == signal.SIGXCPU:
      return reply | {"status": "timeout", "error": "TimeoutError"}
    return reply | {"error": f"Signal{number}"}
  frame = bytes(child.written)
  whole = len(frame) >= 8 and len(frame) == 8 + int.from_bytes(frame[:8], "big")
  if child.status != 0 or not whole:
    return reply | {"error": "SystemExit"}
  return reply | {"report": frame[8:].decode("ascii", "replace")}


def _end(children):
  for child in children:
    child.kill()
    os.waitpid(child.pid, 0)


def main():
  """Takes the pipes off descriptors 0 and 1, walls itself in, serves."""
  requests, replies = os.dup(0), os.dup(1)
  for name in CODECS:
    codecs.lookup(name)
  null = os.open("/dev/null", os.O_RDWR)
  for standard in (0, 1, 2):
    os.dup2(null, standard)
  os.close(null)
  layers = kernel.enter_zygote()
  for name in ("ctypes", "_ctypes", "kernel"):
    sys.modules.pop(name, None)
  sys.path.clear()
  sys.path_importer_cache.clear()
  hello = json.dumps(layers).encode("ascii")
  os.write(replies, len(hello).to_bytes(8, "big") + hello)
  gc.collect()
  gc.freeze()
  gc.disable()
  sys.setrecursionlimit(1000)
  serve(requests, replies, seccomp=sys.argv[1] == "seccomp")
  os._exit(0)


if __name__ == "__main__":
  main()
