"""Runs a command on one core, which ends when the process that started it does.

  python -m azr_jax.lab.experiments.pinned PARENT CORE COMMAND...

The command gets SIGTERM when its parent ends, however that ends, so no run goes
on that nobody counts. This module imports the standard library alone.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
  """Becomes the command, on one core.

  Args:
    arguments: the parent's process, the core, and the command.
  """
  parent, core, *command = arguments
  os.sched_setaffinity(0, {int(core)})
  ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
  # The parent may have ended before it was watched.
  if os.getppid() != int(parent):
    sys.exit(1)
  os.execvp(command[0], command)


if __name__ == "__main__":
  main(sys.argv[1:])
