"""What a pool is told: how many zygotes, how long, how large, which walls."""

import dataclasses

WALLS = frozenset(
  ("seccomp", "landlock", "namespaces", "unprivileged", "limits")
)

_RANGES = {
  "workers": (1, 4096, (int,)),
  "timeout_s": (0.01, 86_400, (int, float)),  # Up to a day.
  "memory_mb": (64, 1 << 20, (int,)),
}


@dataclasses.dataclass(frozen=True)
class Settings:
  """Settings of a pool.

  Attributes:
    workers: pairs of zygotes, about the cores to spare.
    timeout_s: wall-clock seconds per call of a program.
    memory_mb: address space per program.
    unsafe: run without seccomp, where the kernel has none.
    without: others of `WALLS` to leave out, to see what each catches.
  """

  workers: int
  timeout_s: float
  memory_mb: int
  unsafe: bool = False
  without: tuple[str, ...] = ()

  def check(self) -> None:
    """Raises ValueError, naming the setting, for one that is out of range."""
    for name, (low, high, kinds) in _RANGES.items():
      value = getattr(self, name)
      if type(value) not in kinds or not low <= value <= high:
        raise ValueError(
          f"{name} is {value!r}; expected a number from {low} to {high}"
        )
    optional = WALLS - {"seccomp"}  # Which has a setting of its own.
    if not optional.issuperset(self.without):
      raise ValueError(
        f"without is {self.without}; expected of {sorted(optional)}"
      )

  def walls(self) -> frozenset[str]:
    """The walls to raise."""
    return WALLS - {*self.without, *(("seccomp",) if self.unsafe else ())}
