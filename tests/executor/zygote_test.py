"""Tests of the zygote when a child's output is read after the child's end."""

import subprocess
import sys

from azr_jax.executor.pool import worker

LATE_FLOOD = """
import os, sys, types
sys.path.insert(0, sys.argv[1])
import relay, zygote
pid = os.fork()
if pid == 0:
  os._exit(0)
_, status = os.waitpid(pid, 0)
reading, writing = os.pipe()
os.set_blocking(reading, False)
os.write(writing, b"x")
child = zygote.Child(1, (1.0, 1.0, 1.0), pid, reading, 0)
child.status = status
child.written = zygote.MAX_REPORT_BYTES
zygote._take_output(child)
print(child.flooded, child.written - zygote.MAX_REPORT_BYTES)
"""


def test_a_flood_that_is_read_after_the_end_kills_nobody():
  folder = str(worker._ZYGOTE.parent)
  done = subprocess.run(
    [sys.executable, "-c", LATE_FLOOD, folder],
    capture_output=True,
    text=True,
    timeout=30,
  )
  assert done.stdout.split() == ["True", "1"], done.stderr
