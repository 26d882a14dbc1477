"""The `executor` section of a config: how and where programs run."""

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
# Seccomp has its own setting, `unsafe`, because some kernels lack it.
_OPTIONAL_LAYERS = tuple(sorted(LAYERS - {"seccomp"}))
# Keys that describe the machine; a profile sets all the others.
_MACHINE_KEYS = frozenset(
  "profile backend nodes address workers unsafe disabled_layers".split()
)


@dataclasses.dataclass(frozen=True)
class ExecutorSettings(Settings):
  """The pool's size, the limits of programs, and their sandbox."""

  profile: str = setting(
    profiles.CUSTOM,
    "sandbox profile, which fixes limits, libraries and layers; custom: each "
    "key as set here",
    choices=(*profiles.PROFILES, profiles.CUSTOM),
  )
  backend: str = setting(
    "local", "local: this machine; ray: a Ray cluster", choices=BACKENDS
  )
  nodes: int = setting(
    0,
    "number of Ray actors; 0: one per node with enough cores",
    minimum=0,
    expert=True,
  )
  address: str = setting(
    "", "Ray cluster address; empty: find or start a cluster", expert=True
  )
  workers: int = setting(
    2,
    "programs that run at a time on each machine; use the number of cores",
    minimum=1,
    maximum=4096,
  )
  timeout_s: float = setting(
    2.0,
    "CPU seconds per call of a program",
    paper="wall-clock time. AZR: 10; R1-CI: 60 per script",
    minimum=0.01,
    maximum=86_400,
  )
  job_factor: float = setting(
    4.0,
    "CPU time of a job, all inputs and runs together, in units of timeout_s",
    minimum=1.0,
    maximum=1e6,
    expert=True,
  )
  sleep_factor: float = setting(
    1.0,
    "time that a program may sleep, all calls of a run together, in units of "
    "timeout_s; waiting for a core does not count",
    minimum=0.0,
    maximum=1e6,
    expert=True,
  )
  validation_fraction: float = setting(
    0.25,
    "fraction of the limits that applies during validation, so that noise "
    "cannot push a valid program over the limits later",
    paper="none: the same limit as in grading",
    above=0.0,
    maximum=1.0,
    expert=True,
  )
  memory_mb: int = setting(
    512,
    "address space that a program may allocate, in MiB",
    minimum=64,
    maximum=1 << 20,
  )
  libraries: tuple[str, ...] = setting(
    (),
    "libraries that scripts may import besides the standard library",
    paper="not named by R1-CI",
    subset_of=scripts.LIBRARIES,
  )
  unsafe: bool = setting(
    False, "run without seccomp, on a kernel that lacks it", expert=True
  )
  disabled_layers: tuple[str, ...] = setting(
    (),
    "other sandbox layers to leave out, to measure what each one stops",
    subset_of=_OPTIONAL_LAYERS,
    expert=True,
  )

  def check(self) -> None:
    """Raises Invalid if a value differs from the profile's."""
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
    """Returns the settings that a profile fixes, by key."""
    return {
      field.name: getattr(self, field.name)
      for field in dataclasses.fields(self)
      if field.name not in _MACHINE_KEYS
    }

  def require_same(self, other: Mapping[str, Any], origin: str) -> None:
    """Checks that the sandbox equals another one.

    Args:
      other: the other `executor` section; missing keys count as equal.
      origin: where the other section comes from, for the error message.

    Raises:
      Invalid: a value differs.
    """
    for key, value in self.sandbox().items():
      others = other.get(key, value)
      others = tuple(others) if isinstance(others, list) else others
      if value != others:
        raise Invalid(
          f"config.executor.{key}",
          f"={value!r}: expected {others!r}, as {origin} has with "
          f"executor.profile={other.get('profile')!r}",
        )

  @property
  def validation_timeout_s(self) -> float:
    """CPU seconds per call of a program during validation."""
    return self.validation_fraction * self.timeout_s

  def limits(self, job: Job) -> Limits:
    """Returns the limits of each run of a job."""
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
    """Returns the sandbox layers to activate."""
    return LAYERS - {
      *self.disabled_layers,
      *(("seccomp",) if self.unsafe else ()),
    }


def profile(name: str) -> dict[str, Any]:
  """Returns a profile's values for the `executor` section of a config.

  Raises:
    KeyError: no profile has this name.
  """
  settings = ExecutorSettings(profile=name, **profiles.PROFILES[name])
  return {"profile": name, **settings.sandbox()}
