"""The commands on the workers of a slice, in a real shell."""

import hashlib
import os
import signal
import subprocess
import sys

import pytest
from launching import wait_until

# A job that takes a while to end after SIGTERM.
RUN = """
import hashlib, os, signal, sys, time
from azr_jax.run import sigterm
def stop(*_):
  print(sigterm.STOPPED, flush=True)
  time.sleep(0.3)
  sys.exit(0)
signal.signal(signal.SIGTERM, stop)
token = os.environ.get("HF_TOKEN", "").encode()
print(hashlib.sha256(token).hexdigest(), sys.argv[2:], flush=True)
open(sys.argv[1], "a").write("started\\n")
time.sleep(float(sys.argv[2]))
"""
# The core of the token is searchable, however a shell or JSON escapes the rest.
CORE = "hf_9Xq7vSecretK2"
SECRET = f"{CORE} a'b\"c$d`e\\f=g"


def make_home(worker, home):
  """Creates a worker's home folder, with a job in its code."""
  python = home / worker.ENVIRONMENT / "bin" / "python"
  python.parent.mkdir(parents=True)
  # A symlink would find packages next to itself, not those of this Python.
  python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
  python.chmod(0o755)
  code = home / worker.CODE
  code.mkdir()
  (code / "job.py").write_text(RUN)
  return home


def test_the_shell_commands_in_a_real_shell(tmp_path, launchers):
  worker = launchers("tpu_worker")
  home = make_home(worker, tmp_path / "home")

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


def command_lines():
  """The command lines of all processes, as any user of a machine sees them."""
  found = []
  for name in filter(str.isdigit, os.listdir("/proc")):
    try:
      with open(f"/proc/{name}/cmdline", "rb") as file:
        found.append(file.read())
    except OSError:  # The process has ended.
      continue
  return b"\n".join(found)


def test_tokens_reach_every_worker_and_nothing_else(gcloud, launchers):
  worker = launchers("tpu_worker")
  homes = [make_home(worker, gcloud.folder / f"worker{i}") for i in (0, 1)]
  started = gcloud.folder / "started"
  gcloud.plan({"nohup": ["SHELL"]})
  process = gcloud.start(
    "run",
    "--pass_env=HF_TOKEN,LIBTPU_INIT_ARGS",
    job=("job", str(started), "20", "--workdir=gs://bucket/x"),
    HF_TOKEN=SECRET,
    LIBTPU_INIT_ARGS="--xla_a=1 --xla_b=2",
  )
  out, error = process.communicate(timeout=60)
  try:
    assert process.returncode == 0, error
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    logs = [home / worker.LOG for home in homes]
    for log in logs:
      wait_until(lambda log=log: log.exists() and digest in log.read_text())
      assert "--distributed" in log.read_text()
    assert CORE.encode() not in command_lines()
    for home in homes:
      pid = (home / worker.PID).read_text().strip()
      with open(f"/proc/{pid}/environ", "rb") as file:
        assert b"LIBTPU_INIT_ARGS=--xla_a=1 --xla_b=2\0" in file.read()
  finally:
    for home in homes:
      os.killpg(int((home / worker.PID).read_text()), signal.SIGKILL)
  written = [f for f in gcloud.folder.rglob("*") if f.is_file()]
  assert len(written) > 8
  assert not [f for f in written if CORE.encode() in f.read_bytes()]
  assert CORE not in out + error
  # The printed line does the same in a shell that has the variables.
  assert "printf 'HF_TOKEN=%s" in out and '"$HF_TOKEN"' in out


def test_an_input_that_was_cut_starts_nothing(tmp_path, launchers):
  variables = launchers("variables")
  text = variables.text({"A": SECRET, "B": "2"})
  command = f'{variables.READ_VARIABLES}printf "%s\\n" "$A" "$B"; cat'
  whole = subprocess.run(
    ["bash", "-c", command], input=text + "rest", capture_output=True, text=True
  )
  assert whole.stdout == f"{SECRET}\n2\nrest"
  for cut in ("", "A=x\n", text.removesuffix("END\n")):
    done = subprocess.run(
      ["bash", "-c", command], input=cut, capture_output=True, text=True
    )
    assert done.returncode == 3 and not done.stdout
    assert "did not arrive" in done.stderr
  source = variables.source(["A", "B"])
  piped = subprocess.run(
    ["bash", "-c", source],
    env=os.environ | {"A": SECRET, "B": "2"},
    capture_output=True,
    text=True,
  )
  assert piped.stdout == text


@pytest.mark.parametrize(
  "name, value", [("HF_TOKEN", None), ("HF_TOKEN", "two\nlines"), ("a-b", "x")]
)
def test_variables_that_cannot_be_passed_are_refused(gcloud, name, value):
  given = {} if value is None else {name: value}
  done = gcloud("up", f"--pass_env={name}", plan={}, **given)
  assert done.returncode == 2 and f"--pass_env={name}" in done.stderr
  assert not gcloud.calls


@pytest.mark.parametrize(
  "module, flag",
  [
    ("azr_jax.train", "--config.model.source"),
    ("azr_jax.sft", "--config.model.source"),
    ("azr_jax.evaluate", "--model"),
  ],
)
def test_one_worker_fetches_the_weights_for_all(gcloud, module, flag):
  job = (module, f"{flag}=hf:Q/x", "--workdir=gs://bucket/runs/azr")
  done = gcloud(
    "run", "--weights=hf:Q/x", "--pass_env=HF_TOKEN", job=job, HF_TOKEN="t"
  )
  assert done.returncode == 0, done.stderr
  ssh = [call for call in gcloud.calls if "ssh" in call[:4]]
  fetches = [call for call in ssh if "azr_jax.fetch" in call[-1]]
  assert len(fetches) == 1 and fetches == ssh[:1]
  assert "--worker=0" in fetches[0]
  store = "gs://bucket/weights/Q/x"
  assert f"--model=hf:Q/x --out={store}" in fetches[0][-1]
  starts = [call for call in ssh if "nohup" in call[-1]]
  assert len(starts) == 2
  for call in starts:
    assert f"{flag}={store}" in call[-1] and f"{flag}=hf:" not in call[-1]
