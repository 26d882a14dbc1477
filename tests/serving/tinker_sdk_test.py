"""The tinker SDK against a training server that needs no device."""

import gc

import pytest

from tests.serving import tinker_program
from tests.serving.bigrams import hosted
from tests.serving.tinker_client import NAME


@pytest.mark.filterwarnings(
  "ignore::ResourceWarning",
  "ignore::pytest.PytestUnraisableExceptionWarning",
)
def test_a_program_of_the_sdk_trains_samples_and_resumes(tmp_path, monkeypatch):
  monkeypatch.setenv("TINKER_TELEMETRY", "0")
  with hosted(tmp_path) as server:
    found = tinker_program.main(server.url, NAME)
  gc.collect()  # The SDK never closes its connections.
  check(found)


def check(found):
  """Checks what a program found."""
  losses = found["losses"]
  assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]
  assert found["after"] == found["resumed"]
  assert found["after"][0] < losses[-1]
  assert found["forward"] < losses[-1]
  first, again = found["tokens"]
  assert first == again and first[0] != first[1]
  assert found["lora_rank"] == 2
  assert found["path"].endswith("/weights/third")
