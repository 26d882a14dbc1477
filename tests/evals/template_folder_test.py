"""Prompts of a user in benchmarks and runs: which file, and the digest."""

import json

import pytest
from typed import stand_in

from azr_jax.config.settings import Invalid
from azr_jax.evals import items, mathematics, registry, template_folder
from azr_jax.evals.benchmark import Item
from azr_jax.evals.items import ItemOptions
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.systems.code_interpreter.settings import CodeInterpreterSettings
from azr_jax.systems.code_interpreter.system import CodeInterpreter
from azr_jax.systems.countdown.settings import CountdownSettings
from azr_jax.systems.countdown.system import Countdown
from azr_jax.trainer import settings, start

TEXTS = {
  "frame": "F {TASK_INSTRUCTION}",
  "solve_deduction": "D {SNIPPET} {INPUT}",
  "math": "M {QUESTION}",
  "question_free": "Q {QUESTION}",
  "countdown_solve": "C {NUMBERS} to {TARGET}",
  "benchmark_math": "B {QUESTION} ({INSTRUCTION})",
  "benchmark_words": "W {QUESTION}",
  "gsm8k": "G {QUESTION}",
}


@pytest.fixture(name="folder")
def write_folder(tmp_path):
  folder = tmp_path / "prompts"
  folder.mkdir()
  for name, text in TEXTS.items():
    (folder / f"{name}.txt").write_text(text)
  return folder


def text_of(benchmark, folder, item):
  found = template_folder.read(str(folder))
  assert found is not None
  options = ItemOptions("", 0, found, 1)
  return items.prompt_text(benchmark, item, options, stand_in(Tokenizer))


TRIPLET = {"type": "triplet", "code": "f", "input": "1", "output": "2"}


@pytest.mark.parametrize(
  "name, text",
  [
    ("math500", "B why? (Give the final result in \\boxed{}.)"),
    ("gsm8k", "G why?"),
    ("problems", "M why?"),
    ("questions", "Q why?"),
    ("countdown", "C  3 40 to 12"),
    ("programs_heldout", "F D f 1"),
  ],
)
def test_each_benchmark_has_its_file(folder, name, text):
  reference = {"nums": [3, 40], "target": 12, "task": TRIPLET}
  item = Item("0", "why?", reference, "deduction")
  assert text_of(registry.find(name), folder, item) == text


def test_training_s_grading_has_training_s_prompt(folder):
  benchmark = mathematics.with_grading(
    registry.find("gsm8k"),
    answer="reward",
    grader="math_verify",
    truncated_grade="graded",
  )
  assert text_of(benchmark, folder, Item("0", "why?", {})) == "M why?"


def test_a_benchmark_without_a_file_is_named(folder):
  with pytest.raises(ValueError, match="benchmark_code.txt: there is no such"):
    text_of(registry.find("humaneval"), folder, Item("0", "why?", {}))


def test_systems_name_the_prompts_that_they_need(folder):
  section = str(folder)
  one = CountdownSettings()
  assert template_folder.read(section, needed=Countdown.prompt_files(one))
  two = CountdownSettings(curriculum="adaptive", proposals=2)
  with pytest.raises(Invalid, match="prompts.templates.*countdown_propose.txt"):
    template_folder.read(section, needed=Countdown.prompt_files(two))
  three = CodeInterpreterSettings(curriculum="online_merge")
  with pytest.raises(Invalid, match="question_text.txt"):
    template_folder.read(section, needed=CodeInterpreter.prompt_files(three))


def test_a_section_may_name_the_digest(folder):
  found = template_folder.read(str(folder))
  assert found is not None
  template_folder.read(str(folder), found.digest)
  with pytest.raises(Invalid, match=f"digest='ab': expected '{found.digest}'"):
    template_folder.read(str(folder), "ab")


def test_a_folder_that_nothing_uses_is_refused(folder):
  config = settings.train_config("custom")
  config.prompts.templates = str(folder)
  with pytest.raises(Invalid, match="'custom' writes its own prompts"):
    settings.read_train(config)


class Opened(Exception):
  """Ends a start once the run's folder is open."""


def opened(folder, run, monkeypatch):
  """Starts a run up to its open folder. Returns the config that it keeps."""

  def stop(*_, **__):
    raise Opened

  config = settings.train_config("orz")
  config.prompts.templates = str(folder)
  monkeypatch.setattr(start.build, "build", stop)
  with pytest.raises(Opened):
    start.train(settings.read_train(config), config, str(run))
  return json.loads((run / "config.json").read_text())["prompts"]


def test_a_resumed_run_needs_the_prompts_it_began_with(
  folder, tmp_path, monkeypatch
):
  run = tmp_path / "run"
  kept = opened(folder, run, monkeypatch)
  assert kept["templates"] == str(folder) and len(kept["digest"]) == 16
  (run / "metrics.jsonl").write_text("{}\n")
  moved = folder.rename(tmp_path / "elsewhere")
  again = opened(moved, run, monkeypatch)
  assert again["digest"] == kept["digest"]
  (moved / "math.txt").write_text("Another {QUESTION}")
  with pytest.raises(ValueError, match=f"digest.*expected '{kept['digest']}'"):
    opened(moved, run, monkeypatch)
