"""Runs a command on one core and ends it together with its parent process.

  python -m azr_jax.lab.experiments.pinned PARENT CORE COMMAND...

The command gets SIGTERM when its parent ends for any reason, so no run
continues uncounted. This module imports only the standard library.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
  """Replaces this process by the command, pinned to one core.

  Args:
    arguments: the parent's process id, the core, and the command.
  """
  parent, core, *command = arguments
  os.sched_setaffinity(0, {int(core)})
  ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
  # The parent may have ended before prctl was called.
  if os.getppid() != int(parent):
    sys.exit(1)
  os.execvp(command[0], command)


if __name__ == "__main__":
  main(sys.argv[1:])
