"""The launcher of TPU runs, with a stand-in for gcloud.

The stand-in rejects every command line that the installed SDK rejects.
"""

import signal
import subprocess
import tarfile

import pytest
from launching import QUOTA, wait_until
from typed import present

RENTED = "is rented and billed, whether anything runs or not"
STOP = (
  "gcloud compute tpus queued-resources delete azr --zone=us-west4-a "
  "--project=p --force --quiet"
)
ACTIVE = {"queued-resources describe": ["ACTIVE"]}
# All workers lose the job whenever it is started, like restarted machines.
VANISHES = ACTIVE | {"cat azr_jax.exit": ["gone\ngone"]}
FAILS = ACTIVE | {"cat azr_jax.exit": ["gone\ngone", "running", "1\n0"]}
ENDS = ACTIVE | {"cat azr_jax.exit": ["running", "0\n0"]}


def count(gcloud, name):
  return sum(call.startswith(name) for call in gcloud.names)


def started(gcloud):
  return [call for call in gcloud.calls if "nohup" in call[-1]]


@pytest.mark.slow
def test_a_preempted_run_resumes_on_another_slice(gcloud):
  (gcloud.folder / "tar").unlink()
  done = gcloud(
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
  assert count(gcloud, "compute tpus queued-resources create") == 2
  assert count(gcloud, "compute tpus queued-resources delete") == 1
  # The code is copied and the run started on both slices.
  assert count(gcloud, "compute tpus tpu-vm scp") == 2
  assert len(started(gcloud)) == 2
  for call in started(gcloud):
    assert "--workdir=gs://bucket/runs/azr --distributed" in call[-1]
  first = gcloud.names.index("compute tpus queued-resources create azr")
  assert "storage buckets describe gs://bucket" in gcloud.names[:first]


@pytest.mark.parametrize("plan", [FAILS, VANISHES])
def test_a_failing_run_is_restarted_as_often_as_allowed(gcloud, plan):
  done = gcloud("up", "--restarts=2", plan=plan)
  assert done.returncode == 1
  assert "failed 3 times" in done.stderr
  assert ("the last lines" in done.stdout) == (plan is FAILS)
  assert len(started(gcloud)) == 3


def test_errors_of_gcloud_are_retried(gcloud):
  done = gcloud(
    "up",
    plan={
      "queued-resources describe": ["ERROR NOT_FOUND", "ERROR 503", "ACTIVE"],
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
  assert len(started(gcloud)) == 2


@pytest.mark.slow
def test_errors_over_a_week_do_not_end_the_command(gcloud):
  error = "ERROR no route to host"
  answers = [error, "running", "running"] * 11 + ["0"]
  done = gcloud("up", plan=ACTIVE | {"cat azr_jax.exit": answers})
  assert done.returncode == 0, done.stderr
  assert done.stderr.count("no route to host") == 11


def test_a_running_job_is_only_watched(gcloud):
  done = gcloud("up", plan=ENDS)
  assert done.returncode == 0
  assert not started(gcloud) and not count(gcloud, "compute tpus tpu-vm scp")


def test_a_command_line_that_gcloud_refuses_is_not_repeated(gcloud, sdk_parser):
  if sdk_parser is None:
    pytest.skip("the stand-in refuses nothing without an SDK")
  done = gcloud(
    "up",
    "--labels=no_value",
    plan={"queued-resources describe": ["ERROR NOT_FOUND"]},
  )
  assert done.returncode == 1
  assert "ERROR: (gcloud" in done.stderr
  assert "retrying" not in done.stderr


@pytest.mark.parametrize(
  "flags, plan, message",
  [
    ((), {"auth list": [""]}, "gcloud auth login"),
    ((), {"buckets describe": ["ERROR gs://bucket not found"]}, "gs://bucket"),
    ((), {"accelerator-types": ["ERROR no such type"]}, "no such type"),
    (("--name=Azr!",), {}, "expected lower-case letters"),
    (("--connect=vpn",), {}, "external|iap|internal"),
    (("--bucket=other",), {}, "expected a folder of a bucket, gs://other/"),
    (("--weights=Qwen",), {}, "expected hf:OWNER/NAME"),
    (("--weights=hf:Q/x", "--bucket="), {}, "and --bucket=BUCKET"),
  ],
)
def test_problems_are_reported_before_anything_is_created(
  gcloud, flags, plan, message
):
  done = gcloud("create", *flags, plan=plan)
  assert done.returncode in (1, 2)
  assert message in done.stderr
  assert "Traceback" not in done.stderr
  assert not count(gcloud, "compute tpus queued-resources create")


@pytest.mark.parametrize(
  "values, message",
  [
    ({"zone": "west"}, "--zone=west: expected a zone such as"),
    ({"accelerator": "tpu-9"}, "expected v5litepod-N"),
    ({"project": ""}, "expected the project to bill"),
    ({"max_run_duration": "soon"}, "expected a time such as 8h"),
    ({"valid_until_duration": "8"}, "expected a time such as 8h"),
    ({"spot": True, "reserved": True}, "--spot and --reserved: expected one"),
    ({"spot": True, "max_run_duration": "8h"}, "--max_run_duration: expected"),
    ({"create_flags": ("tags",)}, "expected --NAME=VALUE"),
  ],
)
def test_a_slice_that_cannot_be_is_refused(launchers, values, message):
  fine = dict(name="azr", project="p", zone="us-west4-a", accelerator="v4-8")
  make = launchers("tpu_slice").Slice
  make(**fine).check()
  with pytest.raises(ValueError, match=message):
    make(**fine | values).check()


@pytest.mark.parametrize(
  "flags, plan, message",
  [
    (
      ("--accelerator=v5litepod-256",),
      {},
      "allows 128 in us-west4-a, and v5litepod-256 needs 256",
    ),
    ((), {"quotas info": ["ERROR no Cloud Quotas API"]}, "cannot be read"),
    ((), {}, ""),
  ],
)
def test_a_quota_warns_and_never_stops(gcloud, flags, plan, message):
  done = gcloud("check", *flags, plan=plan)
  assert done.returncode == 0, done.stderr
  assert message in done.stderr
  assert ("warning: " in done.stderr) == bool(message)


@pytest.mark.parametrize(
  "zone, quota, message",
  [
    ("us-east1-c", QUOTA, "allows 0 in us-east1-c"),
    ("us-west4-a", "no JSON", "cannot be read"),
    ("us-west4-a", '{"dimensionsInfos": [{}]}', "allows 0 in"),
    ("us-west4-a", '{"dimensionsInfos": 7}', "cannot be read"),
    ("us-west4-a", QUOTA.replace("128", "-1"), ""),
    ("us-west4-a", "", ""),
  ],
)
def test_any_answer_about_a_quota_is_borne(
  launchers, capsys, zone, quota, message
):
  class Answers:
    dry_run = True

    def run(self, command):
      return quota if "quotas" in command.path else ""

  tpu = launchers("tpu_slice").Slice("azr", "p", zone, "v5litepod-64")
  launchers("tpu_checks").check(Answers(), tpu, "", [])
  warned = capsys.readouterr().err
  assert message in warned and bool(warned) == bool(message)


def test_a_missing_quota_command_warns(gcloud):
  # The help of an SDK that lacks the command in all tracks is an error.
  program = gcloud.folder / "gcloud"
  real = program.rename(gcloud.folder / "standin")
  program.write_text(
    f'#!/bin/bash\n[[ "$*" == *quotas* ]] && exit 2\nexec {real} "$@"\n'
  )
  program.chmod(0o755)
  done = gcloud("create", plan=ACTIVE)
  assert done.returncode == 0, done.stderr
  assert "no track of this gcloud has" in done.stderr


# (command, flags, plan) -> (exit status, messages about the end and the costs).
FAILED_REQUEST = {
  "failedData": ["stockout"],
  "queued-resources describe": ["ERROR NOT_FOUND", "FAILED"],
}
LOST = "ERROR no route to host"
EXITS = {
  "done": ("up", (), ENDS, 0, "the run is done", RENTED),
  "done and deleted": (
    *("up", ("--delete_when=done",), ENDS, 0),
    *("the run is done", "nothing is rented"),
  ),
  "failed": ("up", ("--restarts=0",), FAILS, 1, "failed 1 times", RENTED),
  "failed, deleted when done": (
    *("up", ("--restarts=0", "--delete_when=done"), FAILS, 1),
    *("failed 1 times", RENTED),
  ),
  "failed, deleted when ended": (
    *("up", ("--restarts=0", "--delete_when=ended"), FAILS, 1),
    *("failed 1 times", "nothing is rented"),
  ),
  "gave up": (
    *("up", (), ACTIVE | {"cat azr_jax.exit": [LOST]}, 1, "gave up", RENTED),
  ),
  "gave up and could not delete": (
    "up",
    ("--delete_when=ended",),
    ACTIVE | {"cat azr_jax.exit": [LOST], "queued-resources delete": [LOST]},
    *(1, "no route to host", RENTED),
  ),
  "dead request": (
    *("up", (), FAILED_REQUEST, 1),
    *("the request failed: stockout", "the request stays, FAILED"),
  ),
  "refused request": (
    "create",
    (),
    {
      "queued-resources describe": ["ERROR NOT_FOUND"],
      "queued-resources create": ["ERROR quota exceeded"],
    },
    *(1, "quota exceeded", "if azr"),
  ),
  "created": ("create", (), ACTIVE, 0, "", RENTED),
  "checked": ("check", (), {}, 0, "", "if azr"),
  "no account": ("up", (), {"auth list": [""]}, 1, "auth login", "if azr"),
  "copied": ("copy", (), {}, 0, "", RENTED),
  "not copied": ("copy", (), {"tpu-vm scp": [LOST]}, 1, LOST, "if azr"),
  "started": ("run", (), {}, 0, "", RENTED),
  "not started": ("run", (), {"tpu-vm ssh": [LOST]}, 1, LOST, "if azr"),
  "log": ("logs", (), {"tail": ["a line"]}, 0, "a line", RENTED),
  "no log": ("logs", (), {"tail": [LOST]}, 1, LOST, "if azr"),
  "status": ("status", (), ACTIVE, 0, "ACTIVE", RENTED),
  "status of a request": (
    *("status", (), {"queued-resources describe": ["PROVISIONING"]}, 0),
    *("PROVISIONING", "costs nothing until it is granted"),
  ),
  "status of a lost slice": (
    *("status", (), {"queued-resources describe": ["SUSPENDED"]}, 0),
    *("SUSPENDED", "the request stays, SUSPENDED"),
  ),
  "status of nothing": (
    *("status", (), {"queued-resources describe": ["ERROR NOT_FOUND"]}, 0),
    *("there is no such slice", "nothing is rented"),
  ),
  "deleted": ("delete", (), {}, 0, "", "nothing is rented"),
  "not deleted": (
    *("delete", (), {"queued-resources delete": [LOST]}, 1, LOST, "if azr"),
  ),
}


# Slow: one waits through all retries; the other ends as a faster case does.
_SLOW = ("gave up and could not delete", "failed, deleted when done")


@pytest.mark.parametrize(
  "name",
  [
    pytest.param(name, marks=[pytest.mark.slow] if name in _SLOW else [])
    for name in EXITS
  ],
)
def test_every_exit_says_what_costs_and_how_to_stop_it(gcloud, name):
  command, flags, plan, code, end, cost = EXITS[name]
  done = gcloud(command, *flags, plan=plan)
  assert done.returncode == code, done.stderr
  assert end in done.stdout + done.stderr
  if name == "gave up":
    assert done.stderr.count(LOST) == 11
  lines = done.stderr.splitlines()
  (line,) = [line for line in lines if line.startswith("cost: ")]
  assert cost in line
  is_over = "nothing is rented" in line
  assert lines[-1].strip() == (line if is_over else STOP)
  deleted = count(gcloud, "compute tpus queued-resources delete")
  if command == "up":
    assert deleted == (is_over or "could not delete" in name)


@pytest.mark.parametrize(
  "state, number, code, cost",
  [
    ("ACTIVE", signal.SIGINT, 130, RENTED),
    ("ACTIVE", signal.SIGTERM, 143, RENTED),
    ("ACTIVE", signal.SIGHUP, 129, RENTED),
    (
      "WAITING_FOR_RESOURCES",
      signal.SIGINT,
      130,
      "nothing until it is granted",
    ),
  ],
)
def test_an_interrupted_command_says_it_too(gcloud, state, number, code, cost):
  plan = {"cat azr_jax.exit": ["running"]}
  gcloud.plan(plan | {"queued-resources describe": [state]})
  process = gcloud.start("up", "--delete_when=ended")
  wait_until(lambda: count(gcloud, "compute tpus queued-resources desc") > 2)
  process.send_signal(number)
  _, error = process.communicate(timeout=60)
  assert process.returncode == code, error
  assert cost in error and error.splitlines()[-1].strip() == STOP
  assert "Traceback" not in error
  # The run continues.
  assert not count(gcloud, "compute tpus queued-resources delete")


def test_a_dead_request_of_before_is_deleted_and_made_anew(gcloud):
  states = ["FAILED", "WAITING_FOR_RESOURCES", "ACTIVE"]
  done = gcloud("create", plan={"queued-resources describe": states})
  assert done.returncode == 0, done.stderr
  assert count(gcloud, "compute tpus queued-resources delete") == 1
  assert count(gcloud, "compute tpus queued-resources create") == 1


def test_each_step_of_up_in_a_dry_run(gcloud):
  done = gcloud("up", "--dry_run", "--weights=hf:Q/x", "--delete_when=done")
  assert done.returncode == 0, done.stderr
  steps = [
    *("auth list", "accelerator-types describe", "versions describe"),
    *("quotas info describe", "buckets describe"),
    *("queued-resources describe", "queued-resources create"),
    *("git ls-files", "tpu-vm scp", "uv pip install"),
    *("azr_jax.fetch", "nohup"),
    *("queued-resources describe", "cat azr_jax.exit"),
    "queued-resources delete",
  ]
  lines = done.stdout.splitlines()
  assert len(lines) == len(steps)
  for step, line in zip(steps, lines, strict=True):
    start = "cd " if step == "git ls-files" else "gcloud "
    assert line.startswith(start)
    assert step in line
  assert "there is no such slice" not in done.stdout


def agent(gcloud, code, keys):
  """Fakes the ssh agent, and a key that was generated."""
  for name, body in {
    "ssh-add": f"echo '{keys}'; exit {code}",
    "ssh-keygen": "echo '2048 SHA256:mine me (RSA)'",
  }.items():
    program = gcloud.folder / name
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
  "code, keys, flags, is_fine",
  [
    (0, "2048 SHA256:mine me (RSA)", (), True),
    (0, "2048 SHA256:other me (RSA)", (), False),
    (1, "The agent has no identities.", (), False),
    (1, "", ("--accelerator=v5litepod-8",), True),
    (2, "Could not open a connection", (), True),
  ],
)
def test_the_agent_of_ssh_has_the_key(gcloud, code, keys, flags, is_fine):
  agent(gcloud, code, keys)
  done = gcloud("create", *flags, plan=ACTIVE)
  assert (done.returncode == 0) == is_fine, done.stderr
  assert ("expected `ssh-add" in done.stderr) != is_fine


@pytest.mark.parametrize(
  "flag, message",
  [
    pytest.param("--config.train.steps=3", "", marks=pytest.mark.slow),
    ("--config.azr.promts=3", "did you mean --config.azr.prompts?"),
  ],
)
def test_the_run_s_own_flags_are_checked_before_a_slice_is_asked_for(
  gcloud, flag, message
):
  job = ("azr_jax.train", "--config=configs/azr.py:tiny", flag)
  done = gcloud(
    "check", "--check_job", job=(*job, "--workdir=gs://bucket/runs/azr")
  )
  assert (done.returncode == 1) == bool(message), done.stderr
  assert message in done.stderr
  assert bool(gcloud.calls) != bool(message)


def test_a_check_is_of_the_job_that_the_slice_runs(gcloud):
  """It uses the bucket's model, and no flag takes `--check` as its value."""
  job = ("azr_jax.evaluate", "--config=configs/evaluate.py", "--benchmark=all")
  more = ("up", "--check_job", "--dry_run", "--weights=hf:Q/x")
  done = gcloud(*more, job=(*job, "--workdir=gs://bucket/scores", "--data"))
  [line] = [o for o in done.stdout.splitlines() if "--check" in o]
  assert line == (
    "JAX_PLATFORMS=cpu python -m azr_jax.evaluate --check "
    "--config=configs/evaluate.py --benchmark=all "
    "--workdir=gs://bucket/scores --data --model=gs://bucket/weights/Q/x"
  )


def test_a_command_about_a_slice_that_is_there_names_no_size(gcloud):
  done = gcloud("status", job=(), plan=ENDS)
  assert "azr (us-west4-a) is rented" in done.stderr
  assert "v5litepod" not in done.stderr


def test_files_of_any_name_are_packed(tmp_path, launchers):
  root = tmp_path / "repository"
  names = ["plain.py", "--checkpoint-action=exec=false", "two\nlines", "é ü"]
  (root / "folder").mkdir(parents=True)
  for name in names:
    (root / "folder" / name).write_text(name)
    (root / name).write_text(name)
  for name in ("ignored.log", "removed.py"):
    (root / name).write_text("")
  (root / ".gitignore").write_text("*.log\n*.cfg\n")
  # Virtual environments, in which git ignores one file.
  for environment in (root / "my python", root / "folder" / "[a]*"):
    (environment / "lib").mkdir(parents=True)
    (environment / "lib" / "module.py").write_text("")
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\n")
  for words in (["init", "-q"], ["add", "."]):
    subprocess.run(["git", *words], cwd=root, check=True)
  pasted = tmp_path / "pasted.tar.gz"
  command = launchers("source_archive").command(root, str(pasted))
  subprocess.run(command, shell=True, check=True)
  with tarfile.open(pasted) as packed:
    assert {*packed.getnames()} == {
      *names,
      *(f"folder/{name}" for name in names),
      *(".gitignore", "removed.py"),
    }
  (root / "removed.py").unlink()
  archive = tmp_path / "archive.tar.gz"
  launchers("source_archive").write(root, str(archive))
  with tarfile.open(archive) as packed:
    found = {
      member.name: present(packed.extractfile(member)).read().decode()
      for member in packed
    }
  folders = {f"folder/{name}": name for name in names}
  here = {name: name for name in names}
  assert found == {".gitignore": "*.log\n*.cfg\n"} | here | folders
