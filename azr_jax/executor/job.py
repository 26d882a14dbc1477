"""`Job` and `Result`: the texts that go into the executor and come out."""

import dataclasses
import signal

# Errors of a program whose process was killed from outside, or whose worker
# died, in every try; `Result.is_lost` is True then. No program can send
# SIGKILL, not even to itself, but any program can raise exceptions with these
# names.
KILLED = f"Signal{int(signal.SIGKILL)}"
WORKER_DIED = "WorkerDied"
# The error of a job whose calls took too long together.
JOB_TIMEOUT = "JobTimeout"
STATUSES = ("ok", "error", "timeout", "blocked", "nondeterministic")


@dataclasses.dataclass(frozen=True)
class Job:
  """A program to run on some inputs.

  Attributes:
    id: the caller's name for the job; the result has the same.
    code: Python source that defines `entry`.
    inputs: argument texts, e.g. `"1, [2]"`; each becomes one call. They do not
      see the program's names (`arguments.py`).
    entry: the function to call.
    runs: number of independent runs, in separate processes. Up to three have
      different hash seeds, and each sees another time (`clocks.py`). If values
      differ, the verdict is `nondeterministic`.
    forbidden: module names that the program may not import or name. Other names
      for these modules are hidden (`hiding.py`).
    per_call: whether calls are judged one by one, like the tests of a
      benchmark, so that the limit of a whole job does not apply. They always
      share a process. Calls of other jobs share one only if the program cannot
      tell them apart (`independence.py`).
    validation: whether it decides if the program will be run again: its runs
      get `executor.validation_fraction` of the limits of other jobs.
    libraries: names of `libraries.LIBRARIES` that the program needs besides
      the standard library; for trusted programs, such as graders.
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
    """Checks the fields.

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
    status: one of `STATUSES`; `ok` only if every input gave a value.
    outputs: canonical text per input, None where there is no value.
    error: the exception type's name, or the rule, behind any status but `ok`.
    seconds: wall clock of a run, from fork to end, summed over its processes.
    finished: how many calls ended, with a value or without one.
    cpu_s: CPU seconds of a run, all its calls together.
    is_lost: whether a process of the program was lost. This says nothing about
      the program.
  """

  id: str
  status: str
  outputs: tuple[str | None, ...]
  error: str | None
  seconds: float
  finished: int = 0
  cpu_s: float = 0.0
  is_lost: bool = False
