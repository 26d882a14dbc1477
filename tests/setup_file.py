"""The arguments of setup.py."""

import runpy
import sys
import types
from unittest import mock

import training


def arguments():
  """Returns the keyword arguments that setup.py passes to setuptools."""
  setup = mock.Mock()
  fake = types.SimpleNamespace(setup=setup, find_packages=lambda **_: [])
  with mock.patch.dict(sys.modules, setuptools=fake):
    runpy.run_path(str(training.ROOT / "setup.py"))
  return setup.call_args.kwargs
