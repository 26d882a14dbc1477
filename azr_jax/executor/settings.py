"""Section `executor` of a configuration: how programs are run, and where."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from azr_jax.config.settings import Invalid, Settings, setting
from azr_jax.executor import profiles, scripts
from azr_jax.executor.job import Job
from azr_jax.executor.limits import Limits

BACKENDS = ("local", "ray")
LAYERS = frozenset(
  ("seccomp", "landlock", "namespaces", "unprivileged", "limits")
)
# Seccomp has a setting of its own, because some kernels lack it.
_OPTIONAL_LAYERS = tuple(sorted(LAYERS - {"seccomp"}))
# Keys that describe the machine; a profile sets all the others.
_MACHINE_KEYS = frozenset(
  "profile backend nodes address workers unsafe disabled_layers".split()
)


@dataclasses.dataclass(frozen=True)
class ExecutorSettings(Settings):
  """How many processes run programs, how long, how large, in what sandbox."""

  profile: str = setting(
    profiles.CUSTOM,
    "named values of all keys that do not describe the machine, such as limits "
    "and libraries; custom: as they are set",
    choices=(*profiles.PROFILES, profiles.CUSTOM),
  )
  backend: str = setting(
    "local", "this machine, or the nodes of a Ray cluster", choices=BACKENDS
  )
  nodes: int = setting(
    0,
    "actors of ray; 0: one per node with enough cores",
    minimum=0,
    expert=True,
  )
  address: str = setting(
    "", "address of the Ray cluster; empty: find or start one", expert=True
  )
  workers: int = setting(
    2,
    "pairs of zygotes per machine, one per core; at least three zygotes",
    minimum=1,
    maximum=4096,
  )
  timeout_s: float = setting(
    2.0,
    "CPU time per call of a program, seconds",
    paper="of wall clock. AZR: 10; R1-CI: 60 a script",
    minimum=0.01,
    maximum=86_400,
  )
  job_factor: float = setting(
    4.0,
    "CPU time of a job, all inputs and runs together, multiples of timeout_s",
    minimum=1.0,
    maximum=1e6,
    expert=True,
  )
  sleep_factor: float = setting(
    1.0,
    "time that a program may sleep, all calls of a run together, multiples of "
    "timeout_s; "
    "waiting for a core is no sleep",
    minimum=0.0,
    maximum=1e6,
    expert=True,
  )
  validation_fraction: float = setting(
    0.25,
    "part of these limits that a program may use while it is validated, so "
    "that noise cannot push it over the limits later",
    paper="none: the same limit as in grading",
    above=0.0,
    maximum=1.0,
    expert=True,
  )
  memory_mb: int = setting(
    512,
    "address space that a program may take, MiB",
    minimum=64,
    maximum=1 << 20,
  )
  libraries: tuple[str, ...] = setting(
    (),
    "libraries that scripts may import beside the standard library",
    paper="not named by R1-CI",
    subset_of=scripts.LIBRARIES,
  )
  unsafe: bool = setting(
    False, "run without seccomp, where there is none", expert=True
  )
  disabled_layers: tuple[str, ...] = setting(
    (),
    "other layers of the sandbox to leave out, to see what each catches",
    subset_of=_OPTIONAL_LAYERS,
    expert=True,
  )

  def check(self) -> None:
    """Refuses values that are not those of the profile."""
    if self.profile == profiles.CUSTOM:
      return
    wanted = profiles.PROFILES[self.profile]
    for field in dataclasses.fields(self):
      value = wanted.get(field.name, field.default)
      if field.name in self.sandbox() and getattr(self, field.name) != value:
        raise self.invalid(
          field.name,
          f"{value!r}, as in executor.profile={self.profile!r}, or "
          f"executor.profile={profiles.CUSTOM!r}",
        )

  def sandbox(self) -> dict[str, Any]:
    """Returns the values that a profile has, by key."""
    return {
      field.name: getattr(self, field.name)
      for field in dataclasses.fields(self)
      if field.name not in _MACHINE_KEYS
    }

  def require_same(self, other: Mapping[str, Any], origin: str) -> None:
    """Refuses a sandbox that differs from another.

    Args:
      other: the other's section `executor`, perhaps without some keys.
      origin: what had the other, for the error.

    Raises:
      Invalid: a value differs.
    """
    for key, value in self.sandbox().items():
      others = other.get(key, value)
      others = tuple(others) if isinstance(others, list) else others
      if value != others:
        raise Invalid(
          f"config.executor.{key}",
          f"={value!r}: expected {others!r}, as {origin} has by "
          f"executor.profile={other.get('profile')!r}",
        )

  @property
  def validation_timeout_s(self) -> float:
    """CPU seconds of a call of a program that is validated."""
    return self.validation_fraction * self.timeout_s

  def limits(self, job: Job) -> Limits:
    """Returns what each run of a job may use."""
    call_s = self.validation_timeout_s if job.validation else self.timeout_s
    calls: float = len(job.inputs)
    if not job.per_call:
      calls = min(calls, self.job_factor / job.runs)
    return Limits(
      call_s=call_s,
      run_s=call_s * max(1.0, calls),
      sleep_s=call_s * self.sleep_factor,
    )

  def layers(self) -> frozenset[str]:
    """Returns the layers of the sandbox to set up."""
    return LAYERS - {
      *self.disabled_layers,
      *(("seccomp",) if self.unsafe else ()),
    }


def profile(name: str) -> dict[str, Any]:
  """Returns what a config's section `executor` has by a profile.

  Raises:
    KeyError: there is no such profile.
  """
  settings = ExecutorSettings(profile=name, **profiles.PROFILES[name])
  return {"profile": name, **settings.sandbox()}
