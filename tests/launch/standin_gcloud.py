"""A stand-in for gcloud that rejects what gcloud rejects, and follows a plan.

It is copied to a folder with `plan`, a JSON object that maps a part of a
command line to successive answers, the last of which repeats. An answer that
starts with ERROR is an error. SHELL runs the command of an ssh in a real shell,
in one home folder per worker. Every command line is appended to `calls`. Tests
start it hundreds of times, so it imports few modules.
"""

import json
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
# What `--help` shows if no SDK can be asked.
FLAGS = """--accelerator-type --command --force --format --internal-ip
--internal-ips --labels --max-run-duration --network --node-id --project
--provisioning-model --quiet --reserved --runtime-version --service
--service-account --spot --subnetwork --tunnel-through-iap
--valid-until-duration --worker --zone"""


def main():
  words = sys.argv[1:]
  code, printed, error = parse(words)
  if code or "--help" in words:
    sys.stdout.write(printed)
    sys.stderr.write(error)
    sys.exit(code)
  with open(f"{FOLDER}/calls", "a") as file:
    file.write(json.dumps(words) + "\n")
  answer = planned(" ".join(words))
  if answer.startswith("ERROR"):
    sys.exit(answer)
  if answer == "SHELL":
    sys.exit(shell(words))
  sys.stdout.write(f"{answer}\n")


def parse(words):
  """Returns status, output and error of the real parser."""
  if not os.environ.get("SDK_SOCKET"):
    return 0, FLAGS if "--help" in words else "", ""
  import socket

  with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(os.environ["SDK_SOCKET"])
    stream = connection.makefile("rw")
    stream.write(json.dumps(words) + "\n")
    stream.flush()
    return json.loads(stream.readline())


def planned(line):
  """Returns the next answer of the first plan entry that matches the line."""
  with open(f"{FOLDER}/plan") as file:
    plan = json.load(file)
  for part, answers in plan.items():
    if part in line:
      if len(answers) > 1:
        with open(f"{FOLDER}/plan", "w") as file:
          json.dump(plan | {part: answers[1:]}, file)
      return answers[0]
  return ""


def shell(words):
  """Runs the command of an ssh as the worker would. Returns its status."""
  import subprocess

  given = dict(
    w.split("=", 1) for w in words if w.startswith("--") and "=" in w
  )
  home = f"{FOLDER}/worker{given['--worker']}"
  return subprocess.run(
    ["bash", "-c", given["--command"]],
    cwd=home,
    env={"PATH": os.environ["PATH"], "HOME": home},
    check=False,
  ).returncode


if __name__ == "__main__":
  main()
