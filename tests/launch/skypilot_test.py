"""SkyPilot tasks, read by SkyPilot's own parser, and the commands they run.

SkyPilot is not a dependency of the tests (`pip install skypilot`). Without it,
the tasks are only read as YAML.
"""

import os
import subprocess
import sys

import pytest
import training
import yaml

FOLDER = training.ROOT / "launch" / "skypilot"
TASKS = sorted(FOLDER.glob("*.yaml"))
ENVS = {"BUCKET": "mine", "HF_TOKEN": "", "WANDB_API_KEY": ""}
# What SkyPilot tells the second of three machines.
NODES = {
  "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2\n10.0.0.3",
  "SKYPILOT_NODE_RANK": "1",
  "SKYPILOT_NUM_NODES": "3",
}
PARSE = """
import sys
import sky

task = sky.Task.from_yaml_config(
    __import__("yaml").safe_load(open(sys.argv[1])),
    env_overrides=[("BUCKET", "mine")])
(resources,) = task.resources
print(task.name, task.num_nodes, resources.use_spot, resources.cloud)
print(resources.accelerators, resources.accelerator_args)
print(resources.job_recovery)
print(sorted(task.envs), sorted(task.secrets))
"""


def _name(path):
  return path.name


def _arguments(path, tmp_path, **changes):
  """Returns the command line that a task's `run` starts, using a real shell."""
  task = yaml.safe_load(path.read_text())
  python = tmp_path / "azr_jax_environment" / "bin" / "python"
  python.parent.mkdir(parents=True)
  python.write_text(
    f"#!{sys.executable}\n"
    "import os, sys\n"
    "print(*sys.argv[1:], sep='\\n')\n"
    "print('HF_TOKEN' in os.environ)\n"
  )
  python.chmod(0o755)
  envs = {**task["envs"], **task["secrets"], **ENVS, **NODES, **changes}
  done = subprocess.run(
    ["bash", "-c", task["run"]],
    env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    | {key: str(value or "") for key, value in envs.items()},
    capture_output=True,
    text=True,
    check=True,
  )
  *words, has_token = done.stdout.splitlines()
  return words, has_token == "True"


def test_there_are_tasks_for_tpus_and_gpus():
  assert [path.name for path in TASKS] == ["gpu.yaml", "tpu.yaml"]


def test_a_tpu_s_hosts_find_each_other(tmp_path):
  words, has_token = _arguments(FOLDER / "tpu.yaml", tmp_path)
  assert words == [
    "-m",
    "azr_jax.train",
    "--config=configs/azr.py:qwen2.5-7b",
    "--workdir=gs://mine/runs/azr",
    "--distributed",
  ]
  assert not has_token


def test_gpu_machines_are_told_who_they_are(tmp_path):
  words, has_token = _arguments(
    FOLDER / "gpu.yaml",
    tmp_path,
    NAME="orz",
    CONFIG="configs/orz.py:7b",
    FLAGS="--config.seed=1 --config.train.steps=2",
    HF_TOKEN="hf_x",
  )
  assert words == [
    "-m",
    "azr_jax.train",
    "--config=configs/orz.py:7b",
    "--workdir=gs://mine/runs/orz",
    "--coordinator_address=10.0.0.1:8476",
    "--num_processes=3",
    "--process_id=1",
    "--config.seed=1",
    "--config.train.steps=2",
  ]
  assert has_token


def test_a_workdir_of_one_s_own_is_taken(tmp_path):
  words, _ = _arguments(FOLDER / "gpu.yaml", tmp_path, WORKDIR="/shared/a b")
  assert "--workdir=/shared/a b" in words


@pytest.mark.parametrize("path", TASKS, ids=_name)
def test_extras_and_the_slice_are_those_of_this_repository(path, launchers):
  task = yaml.safe_load(path.read_text())
  assert task["workdir"] == "."
  extra = "tpu" if path.stem == "tpu" else "cuda"
  # The TPU launcher installs the same extras on its slices.
  extras = launchers("tpu_worker").EXTRAS.replace("tpu", extra).split(",")
  assert f"-e '.[{','.join(extras)}]'" in task["setup"]
  setup = (training.ROOT / "setup.py").read_text()
  assert all(f'"{name}": ' in setup for name in extras)


@pytest.mark.slow
@pytest.mark.parametrize("path", TASKS, ids=_name)
def test_skypilot_reads_the_task(path, tmp_path):
  pytest.importorskip("sky", reason="pip install skypilot: its parser")
  done = subprocess.run(
    [sys.executable, "-c", PARSE, str(path)],
    cwd=training.ROOT,
    env={
      **os.environ,
      "HOME": str(tmp_path),
      "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
    },
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-2000:]
  shown = done.stdout.splitlines()
  tpu = path.stem == "tpu"
  assert shown[-4] == ("azr-tpu 1 True GCP" if tpu else "azr-gpu 2 True GCP")
  assert ("'tpu-v5p-64': 1" if tpu else "'H100': 8") in shown[-3]
  assert "FAILOVER" in shown[-2]
  assert shown[-1].endswith("['HF_TOKEN', 'WANDB_API_KEY']")
