"""What users see after a mistake: one to three lines, exit code 2."""

import json
import pathlib
import subprocess
import sys

import pytest
import training

from azr_jax.configs import azr
from azr_jax.run import session

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = pathlib.Path(__file__).with_name("misuse_program.py")
TINY = "--config=configs/azr.py:tiny"
DIR = "--workdir=FOLDER/new"
# Name -> (command, text that its error must contain).
CASES = {
  "no flags": (["train"], "expected --config="),
  "no folder": (["train", TINY], "expected --workdir="),
  "misspelt flag": (
    ["train", TINY, DIR, "--stepz=3"],
    "error: unknown command line flag 'stepz'",
  ),
  "a word": (["train", TINY, DIR, "3"], "'3' is not a flag"),
  "int of a word": (
    ["train", TINY, DIR, "--config.azr.prompts=three"],
    "--config.azr.prompts=three: expected a number",
  ),
  "float of a word": (
    ["train", TINY, DIR, "--config.optimizer.learning_rate=abc"],
    "--config.optimizer.learning_rate=abc: expected a number",
  ),
  "unknown variant": (
    ["train", "--config=configs/azr.py:tinny", DIR],
    "variant 'tinny': expected one of ('tiny',",
  ),
  "unknown config": (
    ["train", "--config=configs/azrr.py:tiny", DIR],
    "there is no such file; did you mean configs/azr.py?",
  ),
  "misspelt key": (
    ["train", TINY, DIR, "--config.azr.promts=3"],
    "did you mean --config.azr.prompts?",
  ),
  "misspelt key of a default config": (
    ["propose", "--random", "--out=FOLDER/x", "--config.rollut.slots=3"],
    "did you mean --config.rollout.slots?",
  ),
  "a section": (
    ["train", TINY, DIR, "--config.azr=3"],
    "--config.azr: the configuration has no such key; it is a section",
  ),
  "steps below one": (
    ["train", TINY, DIR, "--config.train.steps=-1"],
    "config.train.steps=-1: expected an integer of at least 1",
  ),
  "a check of a wrong value": (
    ["train", TINY, DIR, "--check", "--config.learner.kl_coef=-1.0"],
    "config.learner.kl_coef=-1.0: expected a number of at least 0",
  ),
  "a check without a flag": (["sft", "--check"], "expected --config="),
  "unknown estimator": (
    ["train", TINY, DIR, "--config.learner.estimator=grppo"],
    "config.learner.estimator='grppo': expected one of ('trr++',",
  ),
  "not a number": (
    ["train", TINY, DIR, "--config.optimizer.learning_rate=nan"],
    "config.optimizer.learning_rate=nan: expected a number above 0",
  ),
  "not finite": (
    ["train", TINY, DIR, "--config.optimizer.learning_rate=inf"],
    "config.optimizer.learning_rate=inf: expected a number above 0",
  ),
  "unknown system": (
    ["train", TINY, DIR, "--config.system=azzr"],
    "config.system='azzr': expected one of ('azr',",
  ),
  "system without class": (
    ["train", TINY, DIR, "--config.system=json:JSONDecoder"],
    "config.system='json:JSONDecoder': expected",
  ),
  "unknown model": (
    ["train", TINY, DIR, "--config.model.source=nosuch"],
    "model 'nosuch': expected embedded:",
  ),
  "a mesh of other devices": (
    ["train", TINY, DIR, "--config.mesh.tensor=3"],
    "mesh={'data': 1, 'fsdp': -1, 'expert': 1, 'tensor': 3, 'context': 1}: "
    "expected",
  ),
  "another config": (
    ["train", TINY, "--workdir=FOLDER/run", "--config.azr.prompts=8"],
    "config.azr.prompts=8: expected 16, the value that",
  ),
  "another system": (
    ["train", "--config=configs/orz.py:tiny", "--workdir=FOLDER/run"],
    "config.system='orz': expected 'azr', the value that",
  ),
  "a file as folder": (
    ["train", TINY, "--workdir=FOLDER/file"],
    "FOLDER/file is a file: expected the folder of a run",
  ),
  "a folder that cannot be made": (
    ["train", TINY, "--workdir=/proc/nothing/here"],
    "/proc/nothing",
  ),
  "missing data": (
    ["train", "--config=configs/orz.py:tiny", DIR]
    + ["--config.orz.data=('/nosuch.jsonl',)", "--config.orz.counts=(0,)"],
    "/nosuch.jsonl",
  ),
  "missing pass rates": (
    ["train", "--config=configs/code_interpreter.py:tiny", DIR]
    + ["--config.code_interpreter.curriculum=potential"]
    + ["--config.code_interpreter.pass_rates=/nosuch.jsonl"],
    "/nosuch.jsonl: there is no such file; expected one of azr_jax.potential",
  ),
  "no function": (
    ["train", TINY, DIR, "--config.train.flag_classifier=nosuch:f"],
    "config.train.flag_classifier='nosuch:f': expected MODULE:FUNCTION",
  ),
  "a style of another function": (
    ["train", TINY, DIR, "--config.train.style=os.path:join"],
    "config.train.style='os.path:join': expected 'first_word' or some of",
  ),
  "unknown corpus": (
    ["sft", "--config=configs/sft.py:poems", DIR],
    "variant 'poems': expected one of",
  ),
  "unknown benchmark": (
    ["evaluate", "--config=configs/evaluate.py", "--model=embedded:azr-tiny"]
    + ["--benchmark=gsm9k", DIR],
    "benchmark 'gsm9k': expected one of",
  ),
  "a model in the config": (
    ["evaluate", "--config=configs/evaluate.py", "--model=embedded:azr-tiny"]
    + ["--benchmark=programs_heldout", DIR, "--config.model.source=x"],
    "config.model.source='x': expected '', because --model names the model",
  ),
  "damaged config of a run": (
    ["evaluate", "--config=configs/evaluate.py", "--model=FOLDER/damaged"]
    + ["--benchmark=programs_heldout", DIR],
    "FOLDER/damaged/config.json: expected a JSON object",
  ),
  "forecast of some programs": (
    ["compile_check", "--config=configs/azr.py:tiny", "--topology=v5p:2x2x1"]
    + ["--programs=decode", "--lengths=equal:64"],
    "--lengths: a forecast needs all programs; leave out --programs",
  ),
  "export of nothing": (
    ["export", "--workdir=FOLDER/nothing", "--out=FOLDER/model"],
    "--workdir=FOLDER/nothing: there is no such folder",
  ),
  "fetch of a folder": (
    ["fetch", "--model=FOLDER", "--out=FOLDER/model"],
    "--model=FOLDER: expected hf:OWNER/NAME",
  ),
  "report of nothing": (
    ["report.__main__", "FOLDER/nothing", "--out=FOLDER/r.html"],
    "FOLDER/nothing/metrics.jsonl: there is no such file; expected a run's",
  ),
  "report without runs": (["report.__main__"], "required: RUN"),
  "rates of a run without them": (
    ["select_problems", "--run=FOLDER/run", "--out=FOLDER/x"],
    "FOLDER/run holds no finished checkpoint",
  ),
  "neither model nor chance": (
    ["propose", "--out=FOLDER/p.jsonl"],
    "expected either --model=SPEC or --random",
  ),
  "unknown slice": (
    ["compile_check", TINY, "--topology=v9:2x2"],
    "topology='v9:2x2': expected CHIP:SHAPE",
  ),
  "unknown benchmark command": (["benchmark", "sampller"], "invalid choice"),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
  """Exit code and error of every case, by name."""
  folder = tmp_path_factory.mktemp("misuse")
  (folder / "file").write_text("")
  (folder / "damaged" / "checkpoints").mkdir(parents=True)
  (folder / "damaged" / "config.json").write_text("{")
  config = azr.get_config("tiny").to_dict()
  with session.open_run(str(folder / "run"), config, 1.0):
    (folder / "run" / "metrics.jsonl").write_text('{"step": 1}\n')
  commands = [
    [word.replace("FOLDER", str(folder)) for word in words]
    for words, _ in CASES.values()
  ]
  done = subprocess.run(
    [sys.executable, str(PROGRAM)],
    input=json.dumps(commands),
    cwd=ROOT,
    env=training.environment(),
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-2000:]
  texts = json.loads(done.stdout)
  return {
    name: (code, text.replace(str(folder), "FOLDER"))
    for name, (code, text, _) in zip(CASES, texts, strict=True)
  }


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_told_in_three_lines_at_most(outcomes, name):
  code, text = outcomes[name]
  lines = text.strip().splitlines()
  assert code == 2, text
  assert 1 <= len(lines) <= 3, text
  assert lines[0].startswith("error: ")
  assert CASES[name][1] in text


def test_debug_shows_the_traceback():
  done = subprocess.run(
    [sys.executable, "-m", "azr_jax.grading", "--nosuch", "--debug"],
    capture_output=True,
    text=True,
    check=False,
    stdin=subprocess.DEVNULL,
    timeout=60,
  )
  assert "Traceback" in done.stderr and "--nosuch" in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error():
  done = subprocess.run(
    f"{sys.executable} -m azr_jax.grading --help | head -1",
    shell=True,
    capture_output=True,
    text=True,
    check=False,
    timeout=60,
  )
  assert "Traceback" not in done.stderr
