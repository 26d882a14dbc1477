"""The launcher of TPU runs, against gcloud's documented flags and a stand-in.

The stand-in is a program named gcloud that answers from a script: no account is
at hand, and none is wanted.
"""

import json
import os
import subprocess
import sys

import pytest
import train_test

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
STAND_IN = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
words = [word for word in sys.argv[1:] if not word.startswith("-")]
name = " ".join(sys.argv[1:])
with (folder / "asked").open("a") as file:
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
    cwd=train_test.ROOT,
    env=environment,
    capture_output=True,
    text=True,
    check=False,
    timeout=120,
  )


@pytest.fixture(name="stand_in")
def make_stand_in(tmp_path):
  program = tmp_path / "gcloud"
  text = STAND_IN.format(python=sys.executable, folder=str(tmp_path))
  program.write_text(text)
  program.chmod(0o755)

  def run(command, *more, **plan):
    (tmp_path / "plan").write_text(json.dumps(PLAN | plan["plan"]))
    (tmp_path / "asked").write_text("")
    done = launch(command, *FLAGS, *more, "--", *JOB, path=tmp_path)
    lines = (tmp_path / "asked").read_text().splitlines()
    return done, [json.loads(line) for line in lines]

  return run


def test_a_dry_run_prints_documented_commands_alone():
  shown = []
  for command in ("up", "delete", "check", "logs", "status", "create"):
    done = launch(command, "--dry_run", "--spot", *FLAGS, "--", *JOB)
    assert done.returncode == 0, done.stderr
    shown += done.stdout.splitlines()
  commands = [line for line in shown if line.startswith("gcloud ")]
  seen = set()
  for line in commands:
    (name,) = [one for one in DOCUMENTED if line.startswith(f"gcloud {one} ")]
    seen.add(name)
    # Flags of gcloud's own, not those within the remote shell's command.
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


def test_a_preempted_run_goes_on_on_another_slice(stand_in):
  done, asked = stand_in(
    "up",
    "--spot",
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
  names = [" ".join(one[:4]) for one in asked]
  assert names.count("compute tpus queued-resources create") == 2
  assert names.count("compute tpus queued-resources delete") == 1
  # Code is copied and the run begun on each of the two.
  assert names.count("compute tpus tpu-vm scp") == 2
  started = [one for one in asked if "nohup" in one[-1]]
  assert len(started) == 2
  for one in started:
    assert "--workdir=gs://bucket/runs/azr --distributed" in one[-1]
  first = names.index("compute tpus queued-resources create")
  assert "storage buckets describe gs://bucket" in names[:first]


def test_a_run_that_fails_is_begun_again_so_often(stand_in):
  done, asked = stand_in(
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
  assert sum("nohup" in one[-1] for one in asked) == 3


def test_a_run_that_goes_on_is_only_watched(stand_in):
  done, asked = stand_in(
    "up",
    plan={
      "queued-resources describe": ["ACTIVE"],
      "cat azr_jax.exit": ["running", "running", "0"],
    },
  )
  assert done.returncode == 0
  assert not any("nohup" in one[-1] or "scp" in one for one in asked)


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
    (("--name=Azr!",), {}, "expected small letters"),
    (("--bucket=other",), {}, r"expected a folder of gs://other/"),
  ],
)
def test_what_would_fail_is_said_before_anything_is_created(
  stand_in, flags, plan, message
):
  done, asked = stand_in("create", *flags, plan=plan)
  assert done.returncode != 0
  assert message in done.stderr + done.stdout
  assert not any("create" in one for one in asked)
