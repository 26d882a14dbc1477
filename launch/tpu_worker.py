"""The shell commands that install and run a job on a worker of a TPU slice.

All paths are in the worker's home folder.
"""

import shlex

from azr_jax.run.sigterm import STOPPED

CODE, ENVIRONMENT = "azr_jax_code", "azr_jax_environment"
LOG, EXIT, PID = "azr_jax.log", "azr_jax.exit", "azr_jax.pid"
ARCHIVE = "azr_jax.tar.gz"
STOP_S = 600  # a job's time to end its step and save, after SIGTERM
# Configs and benchmarks need these: all extras but other projects'
# environments. A missing one would only show up on a slice that is paid for.
EXTRAS = "tpu,eval,gym,scripts,trackio,wandb"
# The Python of the images is too old, so uv installs another.
INSTALL = (
  f"rm -rf {CODE} && mkdir {CODE} && tar -xzf {ARCHIVE} -C {CODE} && "
  "(command -v ~/.local/bin/uv >/dev/null || "
  "curl -LsSf https://astral.sh/uv/install.sh | sh) && "
  f"([ -d {ENVIRONMENT} ] || "
  f"~/.local/bin/uv venv --python 3.12 {ENVIRONMENT}) && "
  f"~/.local/bin/uv pip install --python {ENVIRONMENT} -e '{CODE}[{EXTRAS}]'"
)
# Prints the exit status, "stopped", "running", or "gone" if no job was started
# or its process has disappeared.
STATUS = (
  f"cat {EXIT} 2>/dev/null || "
  f"(kill -0 -- -$(cat {PID}) 2>/dev/null && echo running || echo gone)"
)
# Commands that show a worker's log: its end, or as it grows.
TAIL = f"tail -n 100 {LOG}"
FOLLOW = f"tail -n 100 -F {LOG}"
# The flags that set the model of a run, and of other commands.
_RUN_MODEL, _MODEL = "--config.model.source", "--model"
_RUNS = ("azr_jax.train", "azr_jax.sft")


def fetch_command(weights: str, store: str) -> str:
  """Returns the command that copies weights to a store, if missing there.

  Only one worker runs it. So it must not look for the slice's devices, which
  would wait for the other workers.

  Args:
    weights: hf:OWNER/NAME.
    store: a folder in a bucket.
  """
  words = ["-m", "azr_jax.fetch", f"--model={weights}", f"--out={store}"]
  return (
    f"cd {CODE} && JAX_PLATFORMS=cpu "
    f"$HOME/{ENVIRONMENT}/bin/python {shlex.join(words)}"
  )


def with_model(job: list[str], source: str) -> list[str]:
  """Returns a job with its model replaced by another source."""
  flag = _RUN_MODEL if job[0] in _RUNS else _MODEL
  others = [word for word in job if not word.startswith(f"{flag}=")]
  return [*others, f"{flag}={source}"]


def start_command(job: list[str]) -> str:
  """Returns the command that starts a job in the background.

  It first stops an earlier job with SIGTERM, and with SIGKILL after `STOP_S`
  seconds. A job that was stopped before its last step exits with status 0, and
  the exit file then says `stopped`.

  Args:
    job: a module and its flags.
  """
  command = shlex.join(["-m", *job, "--distributed"])
  inner = (
    f"$HOME/{ENVIRONMENT}/bin/python {command} > $HOME/{LOG} 2>&1; code=$?; "
    f'grep -q "{STOPPED}" $HOME/{LOG} && code=stopped; '
    f"echo $code > $HOME/{EXIT}"
  )
  return (
    f"if [ -f {PID} ]; then group=$(cat {PID}); "
    "kill -TERM -- -$group 2>/dev/null; "
    f"for second in $(seq {STOP_S}); do "
    "kill -0 -- -$group 2>/dev/null || break; sleep 1; done; "
    "kill -KILL -- -$group 2>/dev/null; fi; "
    f"rm -f {EXIT} {PID}; cd {CODE} || exit 1; "
    f"nohup setsid bash -c {shlex.quote(inner)} </dev/null >/dev/null 2>&1 & "
    f"echo $! > $HOME/{PID}"
  )
