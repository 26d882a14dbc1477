"""Launchers for clusters, with fakes of ssh and Slurm."""

import os
import shlex
import subprocess
import sys

import pytest
import training

FAKE = """#!/bin/bash
echo "$(basename "$0") $*" >> {folder}/calls
{body}
"""


@pytest.fixture(name="fake")
def make_fake(tmp_path):
  def make(name, body="exit 0"):
    program = tmp_path / name
    program.write_text(FAKE.format(folder=tmp_path, body=body))
    program.chmod(0o755)

  return make


def run(tmp_path, *command, **variables):
  environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
  done = subprocess.run(
    command,
    cwd=training.ROOT,
    env=environment | variables,
    capture_output=True,
    text=True,
    check=False,
    timeout=60,
  )
  calls = tmp_path / "calls"
  return done, calls.read_text().splitlines() if calls.exists() else []


def executors(tmp_path, *arguments):
  return run(tmp_path, sys.executable, "launch/ray_executors.py", *arguments)


def test_a_head_comes_first_and_the_others_join_it(tmp_path, fake):
  fake("ssh")
  done, calls = executors(tmp_path, "up", "--hosts=me@a,b,c", "--cpus=8")
  assert done.returncode == 0, done.stderr
  assert "me@a" in calls[0] and "start --head --port=6379" in calls[0]
  assert all("start --address=a:6379" in line for line in calls[1:])
  assert {line.split()[4] for line in calls} == {"me@a", "b", "c"}
  assert all("--num-cpus=8" in line for line in calls)
  assert "--config.executor.address=a:6379" in done.stdout


def test_a_name_that_looks_like_an_option_of_ssh_stays_a_name(tmp_path, fake):
  fake("ssh")
  executors(tmp_path, "up", "--hosts=-oProxyCommand=id,b")
  _, calls = executors(tmp_path, "down", "--hosts=a,-oProxyCommand=id")
  assert len(calls) == 4
  assert all(call.startswith("ssh -o BatchMode=yes -- ") for call in calls)


def test_a_machine_that_fails_is_named(tmp_path, fake):
  fake("ssh", '[[ "$*" == *" b "* ]] && exit 255; exit 0')
  done, _ = executors(tmp_path, "up", "--hosts=a,b,c")
  assert done.returncode == 255
  assert "b: failed with 255" in done.stderr
  assert "--config.executor" not in done.stdout


def test_a_dry_run_of_executors_runs_nothing(tmp_path, fake):
  fake("ssh")
  done, calls = executors(tmp_path, "down", "--hosts=a,b", "--dry_run")
  assert done.returncode == 0 and not calls
  assert done.stdout.count("ray stop") == 2


SET_RUN = 'run="${run:-$!}"'
JOB = ("azr_jax.train", "--config=c.py", "--workdir=/shared/run")


def slurm(tmp_path, *arguments, **variables):
  script = str(training.ROOT / "launch" / "slurm_gpu.sbatch")
  return run(
    tmp_path,
    "bash",
    script,
    *arguments,
    SLURM_JOB_ID="7",
    SLURM_CPUS_PER_TASK="12",
    **variables,
  )


@pytest.mark.parametrize("code", [0, 3])
def test_slurm_runs_the_module_and_passes_its_status_on(tmp_path, fake, code):
  fake("srun", f"exit {code}")
  fake("scontrol")
  script = (training.ROOT / "launch" / "slurm_gpu.sbatch").read_text()
  # The run has ended before the script waits for it.
  late = tmp_path / "late.sbatch"
  late.write_text(script.replace(SET_RUN, f"{SET_RUN}\n/bin/sleep 0.3"))
  done, _ = run(tmp_path, "bash", str(late), *JOB, SLURM_JOB_ID="7")
  assert done.returncode == code
  done, calls = slurm(tmp_path, *JOB)
  assert done.returncode == code
  assert calls[-1:] == [
    "srun --kill-on-bad-exit=1 --cpus-per-task=12 python -m azr_jax.train "
    "--config=c.py --workdir=/shared/run --distributed"
  ]


@pytest.mark.parametrize("early", [False, True])
def test_slurm_requeues_a_run_that_it_stops(tmp_path, fake, early):
  # The fake run sends the signal that precedes the time limit, and exits.
  fake("srun", "kill -USR1 $PPID; sleep 0.5; exit 0")
  fake("scontrol")
  fake("scancel")
  script = (training.ROOT / "launch" / "slurm_gpu.sbatch").read_text()
  # If early, the signal arrives before the script knows the run's process.
  pause = "/bin/sleep 0.3\n" if early else ""
  changed = tmp_path / "job.sbatch"
  changed.write_text(script.replace(SET_RUN, pause + SET_RUN))
  done, calls = run(tmp_path, "bash", str(changed), *JOB, SLURM_JOB_ID="7")
  assert done.returncode == 0, done.stderr
  assert calls[1:] == ["scancel --signal=TERM 7", "scontrol requeue 7"]


def test_slurm_needs_a_module(tmp_path):
  done, _ = slurm(tmp_path)
  assert done.returncode == 2 and "expected a module" in done.stderr


PLAIN = "srun --kill-on-bad-exit=1 --cpus-per-task=12 "
COMMAND = "python -m azr_jax.train --config=c.py --workdir=/shared/run "
HERE = str(training.ROOT)


@pytest.mark.parametrize(
  "variables, middle",
  [
    ({}, ""),
    (
      {"AZR_IMAGE": "/shared/a.sif", "AZR_MOUNTS": "/shared,/x:/y"},
      f"apptainer exec --nv --bind={HERE},/shared,/x:/y --pwd={HERE} "
      "/shared/a.sif ",
    ),
    (
      {"AZR_IMAGE": "/shared/a.sqsh", "AZR_MOUNTS": "/shared,/x:/y"},
      f"--container-image=/shared/a.sqsh --container-mounts={HERE}:{HERE},"
      f"/shared:/shared,/x:/y --container-workdir={HERE} ",
    ),
    (
      {"AZR_IMAGE": "registry#azr_jax:gpu"},
      f"--container-image=registry#azr_jax:gpu --container-mounts={HERE}:{HERE}"
      f" --container-workdir={HERE} ",
    ),
  ],
  ids=["here", "apptainer", "pyxis", "registry"],
)
def test_slurm_runs_python_here_or_in_a_container(
  tmp_path, fake, variables, middle
):
  fake("srun")
  done, calls = slurm(tmp_path, *JOB, **variables)
  assert done.returncode == 0, done.stderr
  assert calls == [f"{PLAIN}{middle}{COMMAND}--distributed"]


def test_slurm_loads_modules_below_a_virtual_environment(tmp_path, fake):
  fake("srun", "command -v python >> $0.python; echo $LOADED >> $0.python")
  fake("module", "exit 1")  # Only the shell function may be called.
  subprocess.run(
    [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")],
    check=True,
  )
  # `module` is a shell function, which uses unset variables.
  function = '() { LOADED="$LOADED $*"; export LOADED; }'
  done, _ = slurm(
    tmp_path,
    *JOB,
    **{"BASH_FUNC_module%%": function},
    AZR_MODULES="python/3.12 cuda/12.9",
    AZR_VENV=str(tmp_path / "venv"),
  )
  assert done.returncode == 0, done.stderr
  python, loaded = (tmp_path / "srun.python").read_text().splitlines()
  assert python == str(tmp_path / "venv" / "bin" / "python")
  assert loaded.split() == ["load", "python/3.12", "cuda/12.9"]


def test_a_dry_run_of_slurm_runs_nothing(tmp_path, fake):
  fake("srun")
  done, calls = slurm(
    tmp_path, *JOB, "--config.azr.types=(1, 2)", AZR_DRY_RUN="1"
  )
  assert done.returncode == 0 and not calls
  assert shlex.split(done.stdout)[-2:] == [
    "--config.azr.types=(1, 2)",
    "--distributed",
  ]


@pytest.mark.parametrize(
  "variables, message",
  [
    ({"AZR_VENV": "/nowhere"}, "AZR_VENV=/nowhere: expected a virtual"),
    ({"AZR_MODULES": "cuda/0"}, "AZR_MODULES=cuda/0: expected modules"),
  ],
)
def test_slurm_names_what_it_does_not_find(tmp_path, fake, variables, message):
  fake("srun")
  fake("module", "exit 1")
  done, calls = slurm(tmp_path, *JOB, **variables)
  assert done.returncode == 2 and message in done.stderr
  assert not [call for call in calls if call.startswith("srun")]
