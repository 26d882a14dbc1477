"""A quota of TPU chips as gcloud prints it, and a wait function."""

import json
import time

# A quota of 128 v5e chips in one zone, and none in another.
QUOTA = json.dumps(
  {
    "dimensionsInfos": [
      {
        "dimensions": {"zone": "us-west4-a"},
        "details": {"value": "128"},
        "applicableLocations": ["us-west4-a"],
      },
      {"details": {"value": "0"}, "applicableLocations": ["us-east1-c"]},
    ]
  }
)


def wait_until(condition):
  """Returns as soon as a condition holds; fails after a minute."""
  deadline = time.monotonic() + 60
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.02)
