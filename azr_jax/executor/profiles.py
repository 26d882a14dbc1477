"""Sandbox profiles: what a program may use, under a name.

A config names the profile of its system, and training, measuring, sampling and
scoring name the same one, so that none of them gives a program more than the
others. `ExecutorSettings` refuses other values under a profile's name; `custom`
stands for any.

| profile | for |
| --- | --- |
| `programs` | tasks of small models, corpora |
| `azr` | tasks of AZR |
| `mathematics` | answers that are compared by algebra |
| `benchmarks` | public benchmarks: algebra, and programs of contests |
| `code_interpreter` | scripts of R1-CI |
| `code_interpreter_small` | scripts of models on a workstation |
| `code_interpreter_tiny` | scripts of the tiny model |
"""

from typing import Any

from azr_jax.executor import scripts

CUSTOM = "custom"
# The values that differ from the defaults of `ExecutorSettings`. A config gets
# them all from `settings.profile`.
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
  # The libraries of graders need the memory.
  "code_interpreter_tiny": {"timeout_s": 5.0, "memory_mb": 2048},
}
