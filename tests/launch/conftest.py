"""Launchers as a user runs them, with a stand-in for gcloud."""

import contextlib
import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest
import real_sdk
import training
from launching import QUOTA

JOB = (
  "azr_jax.train",
  "--config=configs/azr.py:qwen2.5-7b",
  "--workdir=gs://bucket/runs/azr",
)
# A job's own check of its flags takes seconds, so it is off.
FLAGS = ("--project=p", "--bucket=bucket", "--poll_s=0.01", "--nocheck_job")
PLAN = {
  "auth list": ["somebody@example.com"],
  "quotas info": [QUOTA],
  "buckets describe": ["US-WEST4"],
  "tail -n 100": ["the last lines"],
  "tpu-vm describe": ["2"],
}


@pytest.fixture(scope="session")
def sdk_parser():
  """The parser of the installed SDK, or None without an SDK."""
  root = real_sdk.folder()
  with contextlib.ExitStack() as stack:
    if root is None:
      yield None
      return
    parser = real_sdk.Parser(root)
    stack.callback(parser.close)
    yield parser


@pytest.fixture(scope="session")
def sdk_socket(sdk_parser):
  """The socket where a stand-in asks the parser, or "" without a parser."""
  if sdk_parser is None:
    yield ""
    return
  with real_sdk.served(sdk_parser) as path:
    yield path


class Gcloud:
  """A folder with the stand-in, which comes first in the launcher's PATH."""

  def __init__(self, folder, sdk_socket):
    self.folder = folder
    self._socket = sdk_socket
    program = folder / "gcloud"
    lines = (training.ROOT / "tests/launch/standin_gcloud.py").read_text()
    program.write_text(f"#!{sys.executable} -IS\n{lines}")
    program.chmod(0o755)
    self.plan({})

  def plan(self, answers):
    """Sets answers in addition to `PLAN`, and forgets earlier calls."""
    plan = {k: v for k, v in PLAN.items() if k not in answers}
    (self.folder / "plan").write_text(json.dumps(answers | plan))
    (self.folder / "calls").write_text("")

  @property
  def calls(self):
    """The command lines that the stand-in received."""
    lines = (self.folder / "calls").read_text().splitlines()
    return [json.loads(line) for line in lines]

  @property
  def names(self):
    """The words of each call before its first flag."""
    return [
      " ".join(shlex.quote(w) for w in call[: first_flag(call)])
      for call in self.calls
    ]

  def start(self, command, *more, job=JOB, **variables):
    """Starts the launcher, and returns its process."""
    words = ["launch/tpu_vm.py", command, *FLAGS, *more]
    return subprocess.Popen(
      [sys.executable, *words, *(["--", *job] if job else [])],
      cwd=training.ROOT,
      env=os.environ
      | {"PATH": f"{self.folder}:{os.environ['PATH']}"}
      | {"SDK_SOCKET": self._socket, "HOME": str(self.folder)}
      | {"SSH_AUTH_SOCK": ""}
      | variables,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )

  def __call__(self, command, *more, plan=None, job=JOB, **variables):
    """Runs the launcher to its end. Returns exit status and output."""
    if plan is not None:
      self.plan(plan)
    process = self.start(command, *more, job=job, **variables)
    out, error = process.communicate(timeout=120)
    return subprocess.CompletedProcess(
      process.args, process.returncode, out, error
    )


def first_flag(words):
  """Returns the index of the first flag."""
  flags = [i for i, word in enumerate(words) if word.startswith("--")]
  return flags[0] if flags else len(words)


@pytest.fixture
def gcloud(tmp_path, sdk_socket):
  """The launcher with the stand-in, and a tar that packs nothing."""
  (tmp_path / "tar").symlink_to(shutil.which("true"))
  return Gcloud(tmp_path, sdk_socket)


@pytest.fixture
def launchers(monkeypatch):
  """Imports a module from the folder of the launchers."""
  monkeypatch.syspath_prepend(str(training.ROOT / "launch"))
  return importlib.import_module
