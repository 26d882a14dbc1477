"""Prompts of a user in benchmarks and runs: which file, and the digest."""

import json
import pathlib
import re
import shutil

import pytest
from typed import stand_in

from azr_jax.config.settings import Invalid
from azr_jax.configs import evaluate as evaluate_config
from azr_jax.configs import potential as potential_config
from azr_jax.configs import propose as propose_config
from azr_jax.configs import trajectories as trajectories_config
from azr_jax.evals import (
  items,
  mathematics,
  questions,
  registry,
  template_folder,
)
from azr_jax.evals.benchmark import Benchmark, Item
from azr_jax.evals.items import ItemOptions
from azr_jax.lab.data import (
  countdown_pool,
  question_potential,
  rejection_sampling,
)
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.run.session import Run
from azr_jax.systems.code_interpreter.settings import CodeInterpreterSettings
from azr_jax.systems.code_interpreter.system import CodeInterpreter
from azr_jax.systems.countdown.settings import CountdownSettings
from azr_jax.systems.countdown.system import Countdown
from azr_jax.tasks.templates import Templates
from azr_jax.trainer import settings, start, user_prompts

TEXTS = {
  "frame": "F {TASK_INSTRUCTION}",
  "solve_deduction": "D {SNIPPET} {INPUT}",
  "math": "M {QUESTION}",
  "question_free": "Q {QUESTION}",
  "countdown_solve": "C {NUMBERS} to {TARGET}",
  "benchmark_math": "B {QUESTION} ({INSTRUCTION})",
  "benchmark_words": "W {QUESTION}",
  "gsm8k": "G {QUESTION}",
  "riddles": "R {QUESTION}",
}
RIDDLES = Benchmark("riddles", "", list, "words", questions.grade)


@pytest.fixture(name="write")
def make_write(tmp_path):
  """Returns a function that writes a folder of some of the texts."""
  folder = tmp_path / "prompts"

  def write(*names):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in names:
      (folder / f"{name}.txt").write_text(TEXTS[name])
    return folder

  return write


def text_of(benchmark, folder, item):
  found = template_folder.read(str(folder), benchmarks=[benchmark])
  assert found is not None
  options = ItemOptions("", 0, found, 1)
  return items.prompt_text(benchmark, item, options, stand_in(Tokenizer))


TRIPLET = {"type": "triplet", "code": "f", "input": "1", "output": "2"}


@pytest.mark.parametrize(
  "benchmark, files, text",
  [
    ("math500", ["benchmark_math"], "B why? (Give the final result in "),
    ("gsm8k", ["gsm8k"], "G why?"),
    ("problems", ["math"], "M why?"),
    ("questions", ["question_free"], "Q why?"),
    ("countdown", ["countdown_solve"], "C  3 40 to 12"),
    ("programs_heldout", ["frame", "solve_deduction"], "F D f 1"),
    (RIDDLES, ["riddles"], "R why?"),
    (RIDDLES, ["benchmark_words"], "W why?"),
  ],
)
def test_each_benchmark_has_its_file(write, benchmark, files, text):
  if isinstance(benchmark, str):
    benchmark = registry.find(benchmark)
  reference = {"nums": [3, 40], "target": 12, "task": TRIPLET}
  item = Item("0", "why?", reference, "deduction")
  assert text_of(benchmark, write(*files), item).startswith(text)


def test_training_s_grading_has_training_s_prompt(write):
  benchmark = mathematics.with_grading(
    registry.find("gsm8k"),
    answer="reward",
    grader="math_verify",
    truncated_grade="graded",
  )
  assert text_of(benchmark, write("math"), Item("0", "why?", {})) == "M why?"


def test_a_benchmark_without_a_file_is_named(write):
  folder = write("benchmark_words")
  with pytest.raises(Invalid, match="only humaneval.txt, benchmark_code.txt"):
    text_of(registry.find("humaneval"), folder, Item("0", "why?", {}))
  both = [registry.find("humaneval"), RIDDLES]
  found = template_folder.read(str(folder), benchmarks=both)
  assert found is not None
  options = ItemOptions("", 0, found, 1)
  with pytest.raises(ValueError, match="benchmark_code.txt: there is no such"):
    items.prompt_text(
      both[0], Item("0", "why?", {}), options, stand_in(Tokenizer)
    )


TEXT_AGENT = questions.answered_by(registry.find("gsm8k"), "text")


@pytest.mark.parametrize(
  "files, asked, refused",
  [
    (["gsm8k", "benchmark_math"], ["gsm8k"], "benchmark_math.txt"),
    (["gsm8k", "benchmark_math"], ["gsm8k", "math500"], ""),
    (["gsm8k", "math"], ["gsm8k"], "math.txt"),
    (["question_free", "gsm8k"], [TEXT_AGENT], "gsm8k.txt"),
    (["countdown_solve", "math"], ["countdown"], "math.txt"),
  ],
)
def test_a_file_that_no_benchmark_uses_is_named(write, files, asked, refused):
  folder = write(*files)
  benchmarks = [
    registry.find(one) if isinstance(one, str) else one for one in asked
  ]
  if not refused:
    assert template_folder.read(str(folder), benchmarks=benchmarks)
    return
  with pytest.raises(Invalid, match=f"/{refused}: this command uses no such"):
    template_folder.read(str(folder), benchmarks=benchmarks)


@pytest.mark.parametrize("name", sorted(registry.BENCHMARKS))
def test_a_benchmark_with_prompts_of_its_own_refuses_its_name(write, name):
  """Nothing reads `problems.txt`, for example."""
  benchmark = registry.BENCHMARKS[name]
  folder = write()
  (folder / f"{name}.txt").write_text("{QUESTION}")
  if benchmark.prompt is None:
    assert template_folder.read(str(folder), benchmarks=[benchmark])
    return
  with pytest.raises(Invalid, match=f"{name}.txt: this command uses no such"):
    template_folder.read(str(folder), benchmarks=[benchmark])


def test_agents_need_the_prompts_of_their_styles():
  def names(**changes):
    return set(CodeInterpreter.prompt_files(CodeInterpreterSettings(**changes)))

  free, text, code = "question_free", "question_text", "question_code"
  assert names() == {free}
  assert names(curriculum="online_merge") == {free, text, code}
  assert names(
    curriculum="online_merge", pass_rate_agents=("code_agent", "text")
  ) == {free, text}
  assert names(curriculum="online_merge", pass_rate_agents=("steer",)) == {
    *(free, text, code)
  }


def test_systems_name_the_prompts_that_they_need(write):
  section = str(write("countdown_solve"))
  one = CountdownSettings()
  assert template_folder.read(section, needed=Countdown.prompt_files(one))
  two = CountdownSettings(curriculum="adaptive", proposals=2)
  with pytest.raises(Invalid, match="prompts.templates.*countdown_propose.txt"):
    template_folder.read(section, needed=Countdown.prompt_files(two))


def test_a_section_may_name_the_digest(write):
  folder = str(write("gsm8k"))
  asked = [registry.find("gsm8k")]
  found = template_folder.read(folder, benchmarks=asked)
  assert found is not None
  template_folder.read(folder, found.digest, benchmarks=asked)
  with pytest.raises(Invalid, match="digest='gsm8k=ab': .*text of gsm8k$"):
    template_folder.read(folder, "gsm8k=ab", benchmarks=asked)


def test_a_folder_that_nothing_uses_is_refused(write):
  config = settings.train_config("custom")
  config.prompts.templates = str(write("math"))
  with pytest.raises(Invalid, match="templates=.*expected '', because this"):
    settings.read_train(config)
  config.evaluation.every, config.evaluation.benchmarks = 1, "problems"
  assert settings.read_train(config).templates


@pytest.mark.parametrize("command", ["potential", "trajectories", "propose"])
def test_commands_that_sample_refuse_what_they_do_not_use(
  command, write, tmp_path
):
  config, run = {
    "potential": (potential_config, question_potential.estimate),
    "trajectories": (trajectories_config, rejection_sampling.sample),
    "propose": (
      propose_config,
      lambda c, spec, out: countdown_pool.propose(c, spec, out, 1),
    ),
  }[command]
  config = config.get_config("tiny")
  config.prompts.templates = str(write("math"))
  with pytest.raises(Invalid, match="config.prompts.* uses no such prompt"):
    run(config, "no model", str(tmp_path / "out"))


def test_random_puzzles_use_no_prompts(write, tmp_path):
  config = propose_config.get_config("tiny")
  config.prompts.templates = str(write("countdown_solve"))
  with pytest.raises(Invalid, match="config.prompts.*expected ''"):
    countdown_pool.propose(config, None, str(tmp_path / "out"), 1)


def test_arguments_of_a_chat_template_are_refused_beside_prompts(
  write, tmp_path
):
  config = settings.train_config("orz")
  config.prompts.templates = str(write("math"))
  config.evaluation.prompt_format = "chat"
  config.evaluation.chat_template_kwargs = '{"enable_thinking": false}'
  with pytest.raises(
    Invalid, match="config.evaluation.chat_template_kwargs=.*e"
  ):
    settings.read_train(config)
  config = evaluate_config.get_config("questions")
  config.prompts.templates = str(write("gsm8k"))
  config.evaluate.chat_template_kwargs = '{"enable_thinking": false}'
  c = settings.read(settings.EvaluateSettings, config)
  asked = str(tmp_path), {}, [registry.find("gsm8k")]
  with pytest.raises(
    Invalid, match="config.evaluate.chat_template_kwargs=.*ex"
  ):
    user_prompts.read_for_scores(c, *asked, ["text"])
  # CodeSteer's own requests are chats.
  assert user_prompts.read_for_scores(c, *asked, ["text", "steer"])


def documented():
  """Returns the placeholders of each file in the tables of the guide."""
  page = pathlib.Path(__file__).parents[2] / "docs/guide/prompts.md"
  found = {}
  for line in page.read_text().splitlines():
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    names = re.findall(r"`(\w+)\.txt`", cells[0])
    if not line.startswith("| `") or not names:
      continue
    same = re.fullmatch(r"the same as `(\w+)\.txt`", cells[2])
    optional = "".join(re.findall(r"\[.*\]", cells[2]))
    required = cells[2].replace(optional, "")
    both = tuple(
      tuple(re.findall("`([A-Z_]+)`", part)) for part in (required, optional)
    )
    found |= dict.fromkeys(names, found[same[1]] if same else both)
  return found


def test_the_guide_has_every_file_with_its_placeholders():
  files = {
    name: (file.required, file.optional)
    for family in template_folder._FAMILIES
    for name, file in family.items()
  }
  assert documented() == files


class Opened(Exception):
  """Ends a start once the run's folder is open."""


def opened(folder, run, monkeypatch, benchmarks="", system="orz"):
  """Starts a run up to its open folder. Returns the config that it keeps."""

  def stop(*_, **__):
    raise Opened

  config = settings.train_config(system)
  config.rollout.extend_chunk = 16  # Code Interpreter needs one.
  config.prompts.templates = str(folder)
  if benchmarks:
    config.evaluation.every, config.evaluation.benchmarks = 1, benchmarks
  monkeypatch.setattr(start.build, "build", stop)
  with pytest.raises(Opened):
    start.train(settings.read_train(config), config, str(run))
  return json.loads((run / "config.json").read_text())["prompts"]


@pytest.mark.parametrize(
  "system, prompt",
  [
    ("orz", "math"),
    ("countdown", "countdown_solve"),
    ("code_interpreter", "question_free"),
  ],
)
def test_a_resumed_run_needs_the_prompts_it_began_with(
  system, prompt, write, tmp_path, monkeypatch
):
  folder, run = write(prompt), tmp_path / "run"
  kept = opened(folder, run, monkeypatch, system=system)
  assert kept["templates"] == str(folder)
  assert re.fullmatch(f"{prompt}=[0-9a-f]{{12}}", kept["digest"])
  (run / "metrics.jsonl").write_text("{}\n")
  moved = folder.rename(tmp_path / "elsewhere")
  again = opened(moved, run, monkeypatch, system=system)
  assert again["digest"] == kept["digest"]
  # Benchmarks may change, and so may their prompts.
  (moved / "gsm8k.txt").write_text("G {QUESTION}")
  again = opened(moved, run, monkeypatch, "gsm8k", system)
  assert again["digest"] == kept["digest"]
  (moved / "gsm8k.txt").unlink()
  (moved / f"{prompt}.txt").write_text(f"Other {TEXTS[prompt]}")
  with pytest.raises(ValueError, match=rf"other prompts than .*\({prompt}\): "):
    opened(moved, run, monkeypatch, system=system)
  with pytest.raises(ValueError, match=rf"='' has other .*\({prompt}\)"):
    opened("", run, monkeypatch, system=system)


def scored(folder, workdir, names):
  """Returns the digest of an evaluation, which it keeps as if begun."""
  config = evaluate_config.get_config("full")
  config.prompts.templates = str(folder)
  c = settings.read(settings.EvaluateSettings, config)
  benchmarks = [registry.find(name) for name in names]
  c, _ = user_prompts.read_for_scores(c, str(workdir), {}, benchmarks)
  workdir.mkdir(exist_ok=True)
  (workdir / "a.jsonl").write_text("{}\n")
  kept = {"config": {"prompts": {"digest": c.prompts.digest}}}
  (workdir / "config.json").write_text(json.dumps(kept))
  return c.prompts.digest


def test_scores_of_several_commands_have_the_prompts_of_each(write, tmp_path):
  scores = tmp_path / "scores"
  first = scored(write("benchmark_math"), scores, ["math500"])
  both = scored(write("gsm8k"), scores, ["gsm8k"])
  assert first.startswith("math500=") and both.endswith(first)
  assert both.startswith("gsm8k=")
  # The benchmark now has a file of its own.
  folder = write("benchmark_math")
  with pytest.raises(ValueError, match=r"other prompts than .*\(gsm8k\)"):
    scored(folder, scores, ["gsm8k"])
  with pytest.raises(ValueError, match="templates='' has other prompts"):
    scored("", scores, ["gsm8k"])


@pytest.mark.parametrize(
  "trained, scored, words",
  [
    ("math=1", "", "trained with the prompts of a/mine, and is asked"),
    ("", "math=1", "trained with built-in prompts, and"),
    ("math=1 other=2", "math=2", "other texts of these prompts: math$"),
    ("math=1", "math=1", None),
    ("math=1", "gsm8k=2", None),
    ("", "", None),
  ],
)
def test_scoring_a_run_names_the_prompts_that_differ(
  trained, scored, words, tmp_path, monkeypatch
):
  config = settings.train_config("orz")
  config.prompts.templates, config.prompts.digest = "a/mine", trained
  monkeypatch.setattr(user_prompts.loading, "is_run", lambda _: True)
  monkeypatch.setattr(user_prompts.loading, "read_run_config", lambda _: config)
  said = []
  found = None
  if scored:
    found = stand_in(Templates, digest=scored, folder="theirs")
  run = stand_in(Run, print_status=said.append)
  user_prompts.print_differing(found, str(tmp_path), run)
  assert len(said) == (words is not None)
  if words is not None:
    assert re.search(words, said[0])
