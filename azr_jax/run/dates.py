"""Stores the date of a run's first start, which its chat templates show.

Some templates contain the date (Llama 3.2's calls `strftime_now`). Without
this, a run that resumes on another day would have different prompts.
"""

import datetime
import json
import pathlib

from azr_jax.config import user_files
from azr_jax.parallel.hosts import Hosts
from azr_jax.run import storage

# The file in a run's folder.
DATE = "date.json"


def first_start(folder: pathlib.Path, hosts: Hosts) -> datetime.datetime:
  """Returns the date of a run's first start; stores it if this is the first.

  Args:
    folder: the run's folder.
    hosts: the run's processes, which share the folder.

  Raises:
    ValueError: the date file is damaged.
  """

  def keep() -> datetime.datetime:
    date, path = read(folder), folder / DATE
    if hosts.is_primary and not path.exists():
      text = json.dumps({"first_start": date.isoformat()})
      storage.write_atomically(path, f"{text}\n")
    return date

  return hosts.primary_first("the date of the first start", keep)


def read(folder: pathlib.Path) -> datetime.datetime:
  """Returns the date of a run's first start, or now if it has not started.

  Raises:
    ValueError: the date file is damaged.
  """
  path = folder / DATE
  if not path.exists():
    return datetime.datetime.now()
  with user_files.reading(path, "the date of the first start"):
    text = user_files.read_object(path)["first_start"]
    return datetime.datetime.fromisoformat(text)
