"""Section `executor` of a configuration: how programs are run, and where."""

import dataclasses

from azr_jax.config.settings import Settings, setting

BACKENDS = ("local", "ray")
WALLS = frozenset(
  ("seccomp", "landlock", "namespaces", "unprivileged", "limits")
)
# Seccomp has a setting of its own, because some kernels lack it.
_OPTIONAL_WALLS = tuple(sorted(WALLS - {"seccomp"}))


@dataclasses.dataclass(frozen=True)
class ExecutorSettings(Settings):
  """How many processes run programs, how long, how large, behind what walls."""

  backend: str = setting(
    "local", "this machine, or the nodes of a Ray cluster", one_of=BACKENDS
  )
  nodes: int = setting(
    0, "actors of ray; 0: one per node with enough cores", at_least=0
  )
  address: str = setting(
    "", "address of the Ray cluster; empty: find or start one"
  )
  workers: int = setting(
    2,
    "pairs of zygotes per machine, one per core; at least three zygotes",
    at_least=1,
    at_most=4096,
  )
  timeout_s: float = setting(
    2.0,
    "wall clock per call of a program, seconds",
    paper="AZR: 10; R1-CI: 60 a script",
    at_least=0.01,
    at_most=86_400,
  )
  memory_mb: int = setting(
    512, "address space per program, MiB", at_least=64, at_most=1 << 20
  )
  unsafe: bool = setting(False, "run without seccomp, where there is none")
  without: tuple[str, ...] = setting(
    (),
    "other walls to leave out, to see what each catches",
    some_of=_OPTIONAL_WALLS,
  )

  def walls(self) -> frozenset[str]:
    """Returns the walls to raise."""
    return WALLS - {*self.without, *(("seccomp",) if self.unsafe else ())}
