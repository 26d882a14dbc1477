"""Compares benchmark items here with lm-evaluation-harness, one by one.

  python tests/evals/harness_agreement.py MODEL DATA LIMIT WORKDIR PYTHON

PYTHON is the Python of an environment with lm-eval. DATA holds `gsm8k.jsonl`
and `date_understanding.json` of BIG-Bench Hard. Here the model is asked by the
template folder `harness/prompts`, there by `harness/tasks` in the chat template
of the exported model. Each side grades by its own rules.
"""

import collections
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import jax
import pytest

from azr_jax import export
from azr_jax.configs import evaluate as evaluate_config
from azr_jax.evals import record_files
from azr_jax.rollout import policy as policy_lib
from azr_jax.trainer import scoring

HERE = pathlib.Path(__file__).parent / "harness"
# Benchmark -> file of its data. `harness/tasks` reads the same files.
DATA = {"gsm8k": "gsm8k.jsonl", "bbh": "date_understanding.json"}
# As in `harness/tasks`.
MAX_TOKENS = "gsm8k=96,bbh=64"
LONGEST = 96
_TIMEOUT_S = 3600


@dataclasses.dataclass(frozen=True)
class Answer:
  """What a model was asked and said, and whether that is correct."""

  prompt_ids: list[int]
  response: str
  correct: bool


# By benchmark, in the order of the data.
Answers = dict[str, list[Answer]]


def score_here(
  model: str, data: pathlib.Path, limit: int, workdir: pathlib.Path
) -> Answers:
  """Scores a model by `azr_jax.evaluate`, greedy, with the template folder."""
  c = evaluate_config.get_config("chat")
  c.model.dtype = "float32"
  c.prompts.templates = str(HERE / "prompts")
  c.evaluate.max_tokens = MAX_TOKENS
  c.rollout.max_tokens = LONGEST
  c.rollout.prompt_buckets = (256,)
  c.rollout.decode_chunk = 32
  asked: dict[str, list[int]] = {}
  make_prompt = policy_lib.Policy.prompt

  def prompt(policy, text, item):
    made = make_prompt(policy, text, item)
    asked[item.id] = list(made.token_ids)
    return made

  paths = ",".join(f"{name}={data / file}" for name, file in DATA.items())
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(policy_lib.Policy, "prompt", prompt)
    scoring.evaluate(c, model, ",".join(DATA), str(workdir), paths, limit)
  found: Answers = {}
  for name in DATA:
    records = {r["id"]: r for r in record_files.read(workdir / f"{name}.jsonl")}
    found[name] = [
      Answer(ids, records[item]["responses"][0], records[item]["correct"][0])
      for item, ids in asked.items()
      if item in records
    ]
  return found


def score_there(
  model: str,
  data: pathlib.Path,
  limit: int,
  workdir: pathlib.Path,
  python: str,
) -> tuple[Answers, dict[str, str]]:
  """Exports a model and scores it by lm-evaluation-harness.

  Returns:
    The answers, and the versions of the harness and what it runs on.
  """
  folder, out = workdir / "exported", workdir / "harness.json"
  if not folder.exists():
    config = evaluate_config.get_config()
    export.export(config, model, str(folder), "float32")
  program = HERE / "lm_eval_program.py"
  subprocess.run(
    [python, program, folder, HERE / "tasks", str(limit), out],
    cwd=data,
    env=os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""},
    timeout=_TIMEOUT_S,
    check=True,
  )
  found = json.loads(out.read_text(encoding="utf-8"))
  answers = {
    name: [Answer(**item) for item in found["items"][f"{name}_local"]]
    for name in DATA
  }
  return answers, found["versions"]


def differences(
  here: list[Answer], there: list[Answer]
) -> dict[str, list[int]]:
  """Returns the items whose prompts, responses or grades differ."""
  found = collections.defaultdict(list)
  for index, (ours, theirs) in enumerate(zip(here, there, strict=True)):
    for field in dataclasses.fields(Answer):
      if getattr(ours, field.name) != getattr(theirs, field.name):
        found[field.name].append(index)
  return dict(found)


def main(model: str, data: str, limit: str, workdir: str, python: str) -> None:
  """Scores on both sides and prints what differs."""
  folder, items = pathlib.Path(workdir).resolve(), int(limit)
  folder.mkdir(parents=True, exist_ok=True)
  source = pathlib.Path(data).resolve()
  theirs, versions = score_there(model, source, items, folder, python)
  ours = score_here(model, source, items, folder / "scores")
  print(f"jax {jax.__version__}", *(f"{n} {v}" for n, v in versions.items()))
  for name in DATA:
    here, there = ours[name], theirs[name]
    found = differences(here, there)
    print(
      f"{name}: {len(here)} items, {sum(a.correct for a in here)} correct, "
      f"{sum(a.correct for a in there)} there; different {found}"
    )
    for index in sorted({i for items in found.values() for i in items}):
      print(index, here[index], there[index], sep="\n")


if __name__ == "__main__":
  main(*sys.argv[1:])
