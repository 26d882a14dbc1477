"""Fixtures of the models' tests."""

import gguf_files
import pytest


@pytest.fixture(scope="session")
def vocabulary():
  """A small byte-level BPE vocabulary: tokens, merges, kinds."""
  return gguf_files.make_vocabulary()
