"""Data of `experiments/environments`: sound, and nothing scored is in it."""

import json
import pathlib
import re
import sys

import numpy as np
import pytest

from azr_jax.corpora.programs import heldout
from azr_jax.grading.outcome import Outcome
from azr_jax.tasks.programs import environments, seed_files, validation
from azr_jax.tasks.programs.program_key import program_key
from azr_jax.tasks.programs.task import EnvironmentTask, Instance, Triplet
from experiments.environments import texts

FOLDER = pathlib.Path(texts.__file__).parent


@pytest.fixture(scope="module")
def written(tmp_path_factory):
  folder = tmp_path_factory.mktemp("texts")
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, "argv", ["texts", f"--out={folder}", "--count=600"])
    texts.main()
  return folder


@pytest.mark.parametrize("is_deep", [False, True])
def test_a_program_is_right_as_both_tasks(executor, is_deep):
  rng = np.random.default_rng(3)
  drawn = [texts.draw(rng, is_deep=is_deep) for _ in range(6)]
  pending = [
    (
      validation.submit_again(executor, one.triplet),
      environments.submit_grading(executor, one.instance, one.instance.answer),
    )
    for one in drawn
  ]
  for one, (triplet, graded) in zip(drawn, pending, strict=True):
    assert triplet.result() == one.triplet
    assert graded.result() is Outcome.CORRECT
    assert (len(one.program.chain) == 4) == is_deep


def test_the_sandbox_admits_nearly_all_seeds(executor, written):
  tasks = [one.task for one in seed_files.read(str(written / "seeds.jsonl"))]
  made = [task for task in tasks if isinstance(task, EnvironmentTask)]
  assert 2 * len(made) == len(tasks) == 128
  pending = [
    environments.submit(executor, task.code, task.message, 5, seed)
    for seed, task in enumerate(made[::4])
  ]
  # Some can be guessed, such as those that often keep their argument.
  admitted = [
    not isinstance(future.result(), validation.Rejection) for future in pending
  ]
  assert sum(admitted) >= 13


@pytest.mark.parametrize("name", ["held_out.jsonl", "deep.jsonl"])
def test_no_text_has_a_scored_program(written, name):
  scored = [one.task for one in heldout.read(FOLDER / name)]
  keys = {program_key(one.code) for one in scored if isinstance(one, Triplet)}
  messages = {
    one.environment.message for one in scored if isinstance(one, Instance)
  }
  assert len(keys) == len(scored) // 2 == 300

  known = "".join(
    (written / file).read_text()
    for file in ("conversations.jsonl", "seeds.jsonl")
  )
  rows = [json.loads(line) for line in known.splitlines()]
  text = "\n".join(part for row in rows for part in row.values())
  programs = re.findall(r"```python\n(.+?)```", text, re.DOTALL)
  programs += [row["code"] for row in rows if "code" in row]
  assert len(programs) > 600
  assert not keys & {_program(code) for code in programs}
  assert not messages & set(text.splitlines())


def _program(code):
  """Returns the key of a program task, or of what an environment solves."""
  code = code.partition("\ndef score(")[0]
  solved = re.sub(r"import random\ndef generate.+\n.+\n.+\n", "", code)
  return program_key(solved.replace("def solve(", "def f("))
