"""`Job` and `Result`: what goes into the executor and what comes out."""

import dataclasses
import signal

# Errors of a program whose process was killed from outside, or whose worker
# died, on every try; `Result.is_lost` is then True. No program can send
# SIGKILL, not even to itself, but any program can raise an exception with one
# of these names.
KILLED = f"Signal{int(signal.SIGKILL)}"
WORKER_DIED = "WorkerDied"
# The error of a job whose calls, taken together, ran too long.
JOB_TIMEOUT = "JobTimeout"
STATUSES = ("ok", "error", "timeout", "blocked", "nondeterministic")


@dataclasses.dataclass(frozen=True)
class Job:
  """A program to run on some inputs.

  Attributes:
    id: the caller's name for the job, copied to the result.
    code: Python source that defines `entry`.
    inputs: argument texts, e.g. `"1, [2]"`, one per call. They cannot refer to
      the program's names (`arguments.py`).
    entry: the name of the function to call.
    runs: the number of independent runs, in separate processes. Up to three
      have different hash seeds, and each sees a different time (`clocks.py`).
      If values differ, the verdict is `nondeterministic`.
    forbidden: module names that the program may not import or name. Other names
      for these modules are hidden (`hiding.py`).
    per_call: whether calls are judged one by one, like the tests of a
      benchmark. The limit on a whole job then does not apply, and the calls
      always share a process. Calls of other jobs share one only if the program
      cannot tell them apart (`independence.py`).
    validation: whether the job decides if the program will be used again. Its
      runs then get `executor.validation_fraction` of the usual limits.
    libraries: libraries that the program needs besides the standard library,
      from `libraries.LIBRARIES`; for trusted programs, such as graders.
  """

  id: str
  code: str
  inputs: tuple[str, ...]
  entry: str = "f"
  runs: int = 1
  forbidden: tuple[str, ...] = ()
  libraries: tuple[str, ...] = ()
  validation: bool = False
  per_call: bool = False

  def check(self) -> None:
    """Validates the fields.

    Raises:
      TypeError, ValueError: a field is invalid; the message names it.
    """
    texts = {"id": self.id, "code": self.code, "entry": self.entry}
    for name, value in texts.items():
      if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r:.80}; expected a string")
    lists = {
      "inputs": self.inputs,
      "forbidden": self.forbidden,
      "libraries": self.libraries,
    }
    for name, value in lists.items():
      is_list = isinstance(value, tuple | list)
      if not is_list or not all(isinstance(text, str) for text in value):
        raise TypeError(f"{name} is {value!r:.80}; expected strings")
    if not self.entry.isidentifier():
      raise ValueError(f"entry is {self.entry!r:.80}; expected a name")
    switches = {"validation": self.validation, "per_call": self.per_call}
    for name, switch in switches.items():
      if type(switch) is not bool:
        raise TypeError(f"{name} is {switch!r:.80}; expected true or false")
    if type(self.runs) is not int or self.runs < 1:
      raise ValueError(f"runs is {self.runs!r:.80}; expected 1 or more")


@dataclasses.dataclass(frozen=True)
class Result:
  """A job's verdict.

  Attributes:
    id: the job's id.
    status: one of `STATUSES`; `ok` only if every input produced a value.
    outputs: the canonical text of each input's value, or None without a value.
    error: the exception type's name, or the broken rule; None if `ok`.
    seconds: wall-clock time of a run, from fork to exit, summed over its
      processes.
    finished: the number of calls that ended, with or without a value.
    cpu_s: CPU seconds of a run, summed over its calls.
    is_lost: whether a process of the program was lost. That says nothing about
      the program itself.
  """

  id: str
  status: str
  outputs: tuple[str | None, ...]
  error: str | None
  seconds: float
  finished: int = 0
  cpu_s: float = 0.0
  is_lost: bool = False
