"""Runs a newcomer's first commands, with the package of this interpreter.

  python newcomer_program.py MODEL

MODEL is the folder of a chat model. Runs in an empty folder and prints one JSON
object: the location of the package, the modules that cannot be imported with
the package that each lacks, and the exit code and output of each command.
"""

import contextlib
import importlib
import importlib.metadata
import io
import json
import os
import pathlib
import pkgutil
import sys
import tempfile
import traceback
import warnings

import azr_jax
from azr_jax.cli import library_noise

ROWS = [
  {"question": f"{a} + 1 =", "prompt": f"{a} + 1 =", "answer": f"#### {a + 1}"}
  for a in range(4)
]
REWARDS = "def brief(completion):\n  return -len(completion) / 100\n"
# Small enough to compile in seconds.
SIZES = {
  "rollout.slots": 4,
  "rollout.prompt_buckets": (64,),
  "rollout.max_tokens": 8,
  "rollout.decode_chunk": 4,
  "rollout.page_size": 8,
}
TRAIN = SIZES | {
  "custom.prompts": 2,
  "custom.group_size": 2,
  "learner.row_length": 80,
  "learner.micro_rows": 1,
  "learner.max_micro_batches": 4,
  "learner.chunk_tokens": 80,
  "train.steps": 1,
}
TRAIN_FROM_PYTHON = """
import json
from azr_jax import api

def brief(completion):
  return -len(completion) / 100

rows = [json.loads(line) for line in open("rows.jsonl")]
config = {config!r}
del config["custom.prompts"]  # As many as there are rows.
run = api.train({model!r}, rows, brief, "from_python", config=config)
print(run.rewards)
"""
READ_SETTINGS = """
from azr_jax.configs import environment
from azr_jax.systems import registry
from azr_jax.trainer import settings
assert registry.healthy_metrics()
settings.read_train(environment.get_config("tiny"))
"""


def flags(values):
  """Returns the flags that set config keys."""
  return [f"--config.{key}={value}" for key, value in values.items()]


def commands(model):
  """Returns the command lines by name."""
  names = importlib.metadata.entry_points(group="console_scripts").names
  found = {
    f"{name} --help": [name, "--help"]
    for name in sorted(names)
    if name.startswith("azr-")
  }
  train = ["azr-train", "--config=configs/custom.py", "--workdir=trained"]
  train += ["--config.custom.data=rows.jsonl", f"--config.model.source={model}"]
  train += ["--config.custom.reward=rewards.py:brief", *flags(TRAIN)]
  score = ["azr-evaluate", "--benchmark=gsm8k", "--data=rows.jsonl"]
  score += ["--config.evaluate.prompt_format=chat", "--limit=2"]
  score += [f"--model={model}"]
  score += ["--workdir=scores", *flags(SIZES)]
  version = ["azr-train", "--version"]
  return found | {"version": version, "train": train, "evaluate": score}


def missing_packages():
  """Returns the modules that lack a package, with the package."""
  missing = {}
  for module in pkgutil.walk_packages(azr_jax.__path__, "azr_jax."):
    # The zygote starts by path, and its modules import each other as siblings.
    if module.name.startswith("azr_jax.executor.child."):
      continue
    try:
      importlib.import_module(module.name)
    except ModuleNotFoundError as error:
      missing[module.name] = error.name
  return missing


def run(words):
  """Runs a command, or the source code of a program."""
  name, *arguments = words
  if name == "python":
    exec(compile(arguments[0], "program.py", "exec"), {"__name__": "__main__"})
    return
  (script,) = importlib.metadata.entry_points(
    group="console_scripts", name=name
  )
  sys.argv = [name, *arguments]
  script.load()()


def in_a_fork(words):
  """Runs a command in a child; returns its exit code and output.

  A process can define flags only once, and importing takes seconds.
  """
  with tempfile.TemporaryFile("w+") as output, warnings.catch_warnings():
    # JAX warns about forks. No child uses a thread or device of its parent.
    warnings.simplefilter("ignore")
    child = os.fork()
    if not child:
      os.dup2(output.fileno(), 1)
      os.dup2(output.fileno(), 2)
      code = 1
      try:
        run(words)
        code = 0
      except SystemExit as end:
        code = end.code if isinstance(end.code, int) else bool(end.code)
      except BaseException:  # noqa: BLE001 - the test looks at the traceback.
        traceback.print_exc()
      sys.stdout.flush()
      sys.stderr.flush()
      os._exit(code)
    _, status = os.waitpid(child, 0)
    output.seek(0)
    return os.waitstatus_to_exitcode(status), output.read()


def main():
  """Runs all commands."""
  (model,) = sys.argv[1:]
  lines = "".join(json.dumps(row) + "\n" for row in ROWS)
  pathlib.Path("rows.jsonl").write_text(lines)
  pathlib.Path("rewards.py").write_text(REWARDS)
  # Every command does this before it imports transformers.
  library_noise.silence()
  with contextlib.redirect_stdout(io.StringIO()):
    missing = missing_packages()
  todo = commands(model) | {
    "settings": ["python", READ_SETTINGS],
    "api.train": [
      "python",
      TRAIN_FROM_PYTHON.format(model=model, config=TRAIN),
    ],
  }
  done = {name: in_a_fork(words) for name, words in todo.items()}
  found = {"package": azr_jax.__file__, "missing": missing, "commands": done}
  json.dump(found, sys.stdout)


if __name__ == "__main__":
  main()
