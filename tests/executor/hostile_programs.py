"""All hostile programs by name. Each tries one thing.

| file | its programs |
| --- | --- |
| `hostile_files.py` | read, write and change files, use descriptors |
| `hostile_processes.py` | start, signal, trace processes; connect |
| `hostile_neighbours.py` | ask about, wake and meet other processes |
| `hostile_resources.py` | use up time, memory or space for output |
| `hostile_forging.py` | forge their report, by writing it or by leaving early |
| `hostile_patching.py` | patch the code that runs them and reports on them |
| `hostile_peeking.py` | look for a secret and for other programs |
| `hostile_leaving.py` | change state for the next program or input |
| `hostile_values.py` | have odd values, exceptions or answers |
| `hostile_texts.py` | have odd source text or inputs |

`hostile_run.py` runs them all; `hostile_test.py` does so in each environment.
"""

from tests.executor import (
  hostile_files,
  hostile_forging,
  hostile_leaving,
  hostile_neighbours,
  hostile_patching,
  hostile_peeking,
  hostile_processes,
  hostile_resources,
  hostile_texts,
  hostile_values,
)
from tests.executor.hostile_case import Case

_TABLES = {
  "files": hostile_files.CASES,
  "processes": hostile_processes.CASES,
  "neighbours": hostile_neighbours.CASES,
  "resources": hostile_resources.CASES,
  "forging": hostile_forging.CASES,
  "patching": hostile_patching.CASES,
  "peeking": hostile_peeking.CASES,
  "leaving": hostile_leaving.CASES,
  "values": hostile_values.CASES,
  "texts": hostile_texts.CASES,
}
CASES: dict[str, Case] = {
  f"{table}/{name}": case
  for table, cases in _TABLES.items()
  for name, case in cases.items()
}
