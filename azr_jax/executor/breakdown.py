"""Times the stages of a program's life, in a process like the zygote.

It reads a JSON list of [code, argument text] from standard input, runs these
programs one after another in children that time themselves, and writes the
median microseconds and page faults per stage. `throughput.py` starts it.

| stage | from, to |
| --- | --- |
| fork | the zygote's call, the child's first line |
| layers | closing descriptors, limits, seccomp |
| compile | of the call and of the program |
| run | the program's top level and the call |
| encode | the value to canonical text |
| exit | the child's last line, its reaping by the zygote |

A further row, `page_fault`, is a child's first write to a page of the zygote.
"""

import itertools
import json
import os
import resource
import statistics
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import kernel
import program
import zygote
from canonical import canonical

STAGES = ("fork", "layers", "compile", "run", "encode", "exit")
LAYERS = ("landlock", "limits", "namespaces", "seccomp", "unprivileged")
_PAGES = 1000
_POINT = struct.Struct("<Qq")  # Nanoseconds, and the process's page faults.


def _point():
  faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  return _POINT.pack(time.monotonic_ns(), faults)


def _child(code, text, write_fd, parent):
  points = [_point()]
  kernel.deny_files()
  os.closerange(3, write_fd)
  os.closerange(write_fd + 1, 1 << 20)
  kernel.enter_child(LAYERS, parent, 10)
  points.append(_point())
  call = program.compile_call("f", text)
  compiled = compile(code, "<program>", "exec", 0, True)
  points.append(_point())
  value = program.call(program.define(compiled), "f", call)
  points.append(_point())
  canonical(value)
  points.append(_point())
  os.write(write_fd, b"".join(points))


def _measure(code, text):
  """Runs one program; returns (microseconds, page faults) per stage."""
  read_fd, write_fd = os.pipe()
  parent = os.getpid()
  start = time.monotonic_ns()
  pid = kernel.fork()
  if pid == 0:
    try:
      _child(code, text, write_fd, parent)
    finally:
      os._exit(0)
  os.close(write_fd)
  written = os.read(read_fd, 4096)
  _, _, usage = os.wait4(pid, 0)
  end = time.monotonic_ns()
  os.close(read_fd)
  points = [(start, 0), *_POINT.iter_unpack(written), (end, usage.ru_minflt)]
  return [
    ((after[0] - before[0]) / 1000, after[1] - before[1])
    for before, after in itertools.pairwise(points)
  ]


def _page_copy_us():
  """Returns microseconds of a child's first write to a page of the zygote."""
  pages = bytearray(os.sysconf("SC_PAGE_SIZE") * _PAGES)
  read_fd, write_fd = os.pipe()
  pid = os.fork()
  if pid == 0:
    start = time.monotonic_ns()
    pages[:: os.sysconf("SC_PAGE_SIZE")] = bytes(_PAGES)
    elapsed_ns = time.monotonic_ns() - start
    os.write(write_fd, struct.pack("<q", elapsed_ns))
    os._exit(0)
  os.waitpid(pid, 0)
  (elapsed_ns,) = struct.unpack("<q", os.read(read_fd, 8))
  return elapsed_ns / 1000 / _PAGES


def main():
  """Reads the programs, prepares like a zygote, measures, writes the report."""
  programs = json.load(sys.stdin)
  report = os.dup(1)
  zygote.prepare_process(LAYERS, 512, (), ())
  measured = [_measure(code, text) for code, text in programs]
  complete = [run for run in measured if len(run) == len(STAGES)]
  columns = zip(*complete, strict=True)
  figures = {
    name: {
      "microseconds": statistics.median(time for time, _ in column),
      "page_faults": statistics.median(faults for _, faults in column),
    }
    for name, column in zip(STAGES, columns, strict=True)
  }
  figures["page_fault"] = {"microseconds": _page_copy_us(), "page_faults": 1}
  os.write(report, json.dumps(figures).encode("ascii"))


if __name__ == "__main__":
  main()
