"""The launcher of TPU runs, with a fake gcloud and gcloud's documented flags.

The fake is a program named gcloud that prints planned answers, so that no
account is needed.
"""

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import pytest
import training

JOB = (
  "azr_jax.train",
  "--config=configs/azr.py:qwen2.5-7b",
  "--workdir=gs://bucket/runs/azr",
)
FLAGS = ("--project=p", "--bucket=bucket", "--poll_s=0.01")
# cloud.google.com/sdk/gcloud/reference, read in November 2026.
EVERYWHERE = {"--project", "--format", "--quiet", "--filter"}
DOCUMENTED = {
  "auth list": {"--filter", "--format"},
  "compute tpus accelerator-types describe": {"--zone"},
  "compute tpus tpu-vm versions describe": {"--zone"},
  "quotas info describe": {"--service"},
  "storage buckets describe": set(),
  "compute tpus queued-resources create": {
    "--zone",
    "--runtime-version",
    "--accelerator-type",
    "--node-id",
    "--spot",
    "--service-account",
    "--network",
  },
  "compute tpus queued-resources describe": {"--zone"},
  "compute tpus queued-resources delete": {"--zone", "--force"},
  "compute tpus tpu-vm ssh": {"--zone", "--worker", "--command"},
  "compute tpus tpu-vm scp": {"--zone", "--worker"},
}
FAKE_GCLOUD = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
words = [word for word in sys.argv[1:] if not word.startswith("-")]
name = " ".join(sys.argv[1:])
with (folder / "calls").open("a") as file:
  file.write(json.dumps(sys.argv[1:]) + "\\n")
plan = json.loads((folder / "plan").read_text())
for key, answers in plan.items():
  if key in name:
    answer = answers.pop(0) if len(answers) > 1 else answers[0]
    (folder / "plan").write_text(json.dumps(plan))
    if answer.startswith("ERROR"):
      sys.exit(answer)
    print(answer)
    break
"""
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
PLAN = {
  "auth list": ["somebody@example.com"],
  "quotas info": [QUOTA],
  "buckets describe": ["US-WEST4"],
  "tail -n 30": ["the last lines"],
}


def launch(*arguments, path=None):
  environment = dict(os.environ)
  if path is not None:
    environment["PATH"] = f"{path}:{environment['PATH']}"
  return subprocess.run(
    [sys.executable, "launch/tpu_vm.py", *arguments],
    cwd=training.ROOT,
    env=environment,
    capture_output=True,
    text=True,
    check=False,
    timeout=120,
  )


@pytest.fixture(name="gcloud")
def make_gcloud(tmp_path):
  program = tmp_path / "gcloud"
  text = FAKE_GCLOUD.format(python=sys.executable, folder=str(tmp_path))
  program.write_text(text)
  program.chmod(0o755)

  def run(command, *more, plan, fake_tar=True):
    if fake_tar:  # packing all files takes half a second
      (tmp_path / "tar").symlink_to(shutil.which("true"))
    (tmp_path / "plan").write_text(json.dumps(PLAN | plan))
    (tmp_path / "calls").write_text("")
    done = launch(command, *FLAGS, *more, "--", *JOB, path=tmp_path)
    lines = (tmp_path / "calls").read_text().splitlines()
    return done, [json.loads(line) for line in lines]

  return run


def test_a_dry_run_prints_only_documented_commands():
  printed = []
  for command in ("up", "delete", "check", "logs", "status", "create"):
    done = launch(command, "--dry_run", "--spot", *FLAGS, "--", *JOB)
    assert done.returncode == 0, done.stderr
    printed += done.stdout.splitlines()
  commands = [line for line in printed if line.startswith("gcloud ")]
  seen = set()
  for line in commands:
    (name,) = [n for n in DOCUMENTED if line.startswith(f"gcloud {n} ")]
    seen.add(name)
    # bash splits the words, so that flags in the remote command do not count.
    words = subprocess.run(
      ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True
    ).stdout.split("\0")
    flags = {word.partition("=")[0] for word in words if word[:2] == "--"}
    assert flags <= DOCUMENTED[name] | EVERYWHERE, (line, flags)
  assert seen == set(DOCUMENTED)
  text = "\n".join(commands)
  assert "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI" in text
  assert "--accelerator-type=v5litepod-64" in text
  assert "--runtime-version=v2-alpha-tpuv5-lite" in text


def test_a_preempted_run_resumes_on_another_slice(gcloud):
  done, calls = gcloud(
    "up",
    "--spot",
    fake_tar=False,
    plan={
      "queued-resources describe": [
        "ERROR NOT_FOUND",
        "WAITING_FOR_RESOURCES",
        "PROVISIONING",
        *["ACTIVE"] * 3,
        "SUSPENDED",
        "SUSPENDED",
        "WAITING_FOR_RESOURCES",
        "ACTIVE",
      ],
      "cat azr_jax.exit": ["running", "running\nrunning", "0\nrunning", "0\n0"],
    },
  )
  assert done.returncode == 0, done.stderr
  assert "the run is done" in done.stdout
  names = [" ".join(call[:4]) for call in calls]
  assert names.count("compute tpus queued-resources create") == 2
  assert names.count("compute tpus queued-resources delete") == 1
  # The code is copied and the run started on both slices.
  assert names.count("compute tpus tpu-vm scp") == 2
  started = [call for call in calls if "nohup" in call[-1]]
  assert len(started) == 2
  for call in started:
    assert "--workdir=gs://bucket/runs/azr --distributed" in call[-1]
  first = names.index("compute tpus queued-resources create")
  assert "storage buckets describe gs://bucket" in names[:first]


def test_a_failing_run_is_restarted_as_often_as_allowed(gcloud):
  done, calls = gcloud(
    "up",
    "--restarts=2",
    plan={
      "queued-resources describe": ["ACTIVE"],
      "cat azr_jax.exit": ["gone\ngone", "running", "1\n0"],
    },
  )
  assert done.returncode != 0
  assert "failed 3 times" in done.stderr
  assert "the last lines" in done.stdout
  assert sum("nohup" in call[-1] for call in calls) == 3


def test_errors_of_gcloud_are_retried(gcloud):
  done, calls = gcloud(
    "up",
    plan={
      "queued-resources describe": [
        "ERROR NOT_FOUND",
        "ERROR 503",
        "ACTIVE",
      ],
      "tpu-vm scp": ["ERROR connection refused", "ok"],
      "cat azr_jax.exit": [
        "gone",
        "gone",
        "ERROR timed out",
        "stopped\n0",
        "running",
        "0\n0",
      ],
    },
  )
  assert done.returncode == 0, done.stderr
  assert "503" in done.stderr and "connection refused" in done.stderr
  # Started after the errors, and again after it was stopped early.
  assert sum("nohup" in call[-1] for call in calls) == 2


def test_repeated_errors_end_the_command(gcloud):
  done, _ = gcloud(
    "up",
    plan={
      "queued-resources describe": ["ACTIVE"],
      "cat azr_jax.exit": ["ERROR no route to host"],
    },
  )
  assert done.returncode != 0
  assert done.stderr.count("no route to host") == 11


# A job that takes a while to end after SIGTERM.
RUN = """
import signal, sys, time
from azr_jax.run import preemption
def stop(*_):
  print(preemption.STOPPED, flush=True)
  time.sleep(0.3)
  sys.exit(0)
signal.signal(signal.SIGTERM, stop)
open(sys.argv[1], "a").write("started\\n")
time.sleep(float(sys.argv[2]))
"""


def test_the_shell_commands_in_a_real_shell(tmp_path):
  worker = import_launcher("tpu_worker")
  home = tmp_path / "home"
  python = home / worker.ENVIRONMENT / "bin" / "python"
  python.parent.mkdir(parents=True)
  # A link would find the packages beside itself, not those of this Python.
  python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
  python.chmod(0o755)
  code = home / worker.CODE
  code.mkdir()
  (code / "job.py").write_text(RUN)

  def shell(command):
    return subprocess.run(
      ["bash", "-c", command],
      cwd=home,
      env=os.environ | {"HOME": str(home)},
      capture_output=True,
      text=True,
      check=False,
      timeout=60,
    ).stdout.strip()

  started = tmp_path / "started"
  assert shell(worker.STATUS) == "gone"
  shell(worker.start_command(["job", str(started), "60"]))
  wait_until(started.exists)
  assert shell(worker.STATUS) == "running"
  first = (home / worker.PID).read_text().strip()
  # The second job starts after the first has ended.
  shell(worker.start_command(["job", str(started), "0"]))
  wait_until(lambda: not is_alive(int(first)))
  wait_until(lambda: shell(worker.STATUS) == "0")
  assert started.read_text().count("started") == 2
  (home / worker.PID).unlink()  # so that the third does not wait for the second
  shell(worker.start_command(["job", str(started), "60"]))
  wait_until(lambda: started.read_text().count("started") == 3)
  os.killpg(int((home / worker.PID).read_text()), signal.SIGTERM)
  wait_until(lambda: shell(worker.STATUS) in ("stopped", "gone"))


def is_alive(group):
  try:
    os.killpg(group, 0)
  except ProcessLookupError:
    return False
  return True


def import_launcher(name):
  """Imports a module that lies beside the launchers."""
  path = training.ROOT / "launch"
  sys.path.insert(0, str(path))
  try:
    return importlib.import_module(name)
  finally:
    sys.path.remove(str(path))


def wait_until(condition):
  deadline = time.monotonic() + 60
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.02)


def test_a_running_job_is_only_watched(gcloud):
  done, calls = gcloud(
    "up",
    plan={
      "queued-resources describe": ["ACTIVE"],
      "cat azr_jax.exit": ["running", "running", "0"],
    },
  )
  assert done.returncode == 0
  assert not any("nohup" in call[-1] or "scp" in call for call in calls)


@pytest.mark.parametrize(
  "flags, plan, message",
  [
    ((), {"auth list": [""]}, "gcloud auth login"),
    (
      ("--accelerator=v5litepod-256",),
      {},
      "allows 128 in us-west4-a, and v5litepod-256 needs 256",
    ),
    (("--zone=us-east1-c",), {}, "allows 0 in us-east1-c"),
    ((), {"buckets describe": ["ERROR gs://bucket not found"]}, "gs://bucket"),
    ((), {"accelerator-types": ["ERROR no such type"]}, "no such type"),
    (("--zone=west",), {}, "expected a zone such as"),
    (("--accelerator=tpu-9",), {}, "expected v5litepod-N"),
    (("--name=Azr!",), {}, "expected lower-case letters"),
    (("--bucket=other",), {}, r"expected a folder of gs://other/"),
  ],
)
def test_problems_are_reported_before_anything_is_created(
  gcloud, flags, plan, message
):
  done, calls = gcloud("create", *flags, plan=plan)
  assert done.returncode != 0
  assert message in done.stderr + done.stdout
  assert not any("create" in call for call in calls)


def test_files_of_any_name_are_packed(tmp_path):
  root = tmp_path / "repository"
  names = ["plain.py", "--checkpoint-action=exec=false", "two\nlines", "é ü"]
  (root / "folder").mkdir(parents=True)
  for name in names:
    (root / "folder" / name).write_text(name)
    (root / name).write_text(name)
  for name in ("ignored.log", "removed.py"):
    (root / name).write_text("")
  (root / ".gitignore").write_text("*.log\n")
  for words in (["init", "-q"], ["add", "."]):
    subprocess.run(["git", *words], cwd=root, check=True)
  (root / "removed.py").unlink()
  archive = tmp_path / "archive.tar.gz"
  import_launcher("source_archive").write(root, str(archive))
  with tarfile.open(archive) as packed:
    found = {
      member.name: packed.extractfile(member).read().decode()
      for member in packed
    }
  folders = {f"folder/{name}": name for name in names}
  here = {name: name for name in names}
  assert found == {".gitignore": "*.log\n"} | here | folders
