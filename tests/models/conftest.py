"""Fixtures for the model tests."""

import gguf_files
import pytest


@pytest.fixture(scope="session")
def vocabulary():
  """Returns a small byte-level BPE vocabulary: tokens, merges, types."""
  return gguf_files.make_vocabulary()
