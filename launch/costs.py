"""Reports what still costs money when a command ends, and how to stop it."""

import shlex

import gcloud
from tpu_slice import Slice

# The states of a request, grouped by what is charged.
GRANTED = ("ACTIVE",)
WAITING = ("WAITING_FOR_RESOURCES", "ACCEPTED", "CREATING", "PROVISIONING")
# A request in one of these states can never become ACTIVE.
DEAD = ("SUSPENDING", "SUSPENDED", "FAILED", "DELETING")
# The state before a command has queried it.
UNKNOWN = "UNKNOWN"


def notice(tpu: Slice, state: str, knows_size: bool = True) -> str:
  """Returns what a slice costs from now on, and the command that stops it.

  Args:
    tpu: the slice.
    state: the last known state of its request; "" if there is none.
    knows_size: whether the accelerator of `tpu` is the one that is rented.
  """
  if not state:
    return (
      f"cost: nothing is rented as {tpu.name} in {tpu.zone}; a bucket is "
      "billed for what it stores"
    )
  size = f"{tpu.accelerator}, {tpu.chips} chips, " if knows_size else ""
  what = f"{tpu.name} ({size}{tpu.zone})"
  if state in GRANTED:
    line = f"{what} is rented and billed, whether anything runs or not"
  elif state in WAITING:
    line = (
      f"the request {what} stays, {state}; it costs nothing until it is "
      "granted, and is billed by the chip-hour from then on"
    )
  elif state in DEAD:
    line = (
      f"the machines of {what} are deleted, or about to be, and cost nothing; "
      f"the request stays, {state}"
    )
  else:
    line = f"if {what} is requested, it is billed as soon as it is granted"
  return f"cost: {line}. Stop it with\n  {stop(tpu)}"


def stop(tpu: Slice) -> str:
  """Returns the command that deletes a slice, for a shell."""
  return shlex.join(gcloud.delete(tpu).argv())
