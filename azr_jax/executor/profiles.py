"""Named sandbox profiles: the limits and libraries of a program.

A config names the profile of its system. Training, measuring, sampling and
scoring all use that profile, so a program has the same limits everywhere.
`ExecutorSettings` refuses a profile's name with other values; `custom` allows
any.

| profile | for |
| --- | --- |
| `programs` | tasks of small models, corpora |
| `azr` | AZR tasks |
| `mathematics` | answers compared by algebra |
| `benchmarks` | public benchmarks: algebra and contest programs |
| `code_interpreter` | R1-CI scripts |
| `code_interpreter_small` | scripts of models on a workstation |
| `code_interpreter_tiny` | scripts of the tiny model |
"""

from typing import Any

from azr_jax.executor import scripts

CUSTOM = "custom"
# Values that differ from the defaults of `ExecutorSettings`. A config gets the
# complete profile from `settings.profile`.
PROFILES: dict[str, dict[str, Any]] = {
  "programs": {},
  "azr": {"timeout_s": 10.0},  # AZR: 10 s of wall clock
  "mathematics": {"timeout_s": 3.0, "memory_mb": 1024},
  "benchmarks": {
    "timeout_s": 6.0,  # LiveCodeBench: 6 s of wall clock
    "memory_mb": 2048,
    "libraries": ("numpy",),
  },
  "code_interpreter": {
    "timeout_s": 60.0,  # R1-CI: 60 s of wall clock
    "memory_mb": 2048,
    "libraries": scripts.LIBRARIES,
  },
  "code_interpreter_small": {
    "timeout_s": 10.0,
    "memory_mb": 2048,
    "libraries": ("numpy",),
  },
  # The graders' libraries need this much memory.
  "code_interpreter_tiny": {"timeout_s": 5.0, "memory_mb": 2048},
}
