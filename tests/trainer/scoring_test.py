"""The scores file, and the command that a run prints at its end."""

import json
import pathlib
import re
import shlex
from typing import cast

import pytest
import scripted
from typed import stand_in

from azr_jax import types
from azr_jax.config.settings import Invalid
from azr_jax.configs import azr, code_interpreter, countdown, evaluate, orz
from azr_jax.evals import items as items_lib
from azr_jax.evals import registry, runner
from azr_jax.evals.items import ItemOptions
from azr_jax.executor import Executor
from azr_jax.rollout.policy import Policy
from azr_jax.run import sigterm, storage
from azr_jax.run.session import Run
from azr_jax.tasks.questions import sources
from azr_jax.trainer import messages, scoring, settings


def test_scores_are_added_to_earlier_ones_with_averages(tmp_path):
  first = {"humaneval_plus/pass@1/unbiased": 0.5}
  assert scoring._write(tmp_path, {"model": "m"}, first) == first
  more = {
    "mbpp_plus/pass@1/unbiased": 0.25,
    "livecodebench/pass@1/unbiased": 0.0,
  }
  scores = scoring._write(tmp_path, {"model": "m"}, more)
  assert scores == first | more | {"average/code": 0.25}
  results = json.loads((tmp_path / scoring.RESULTS).read_text())
  assert results == {"model": "m", "scores": scores}


def test_a_full_disk_leaves_the_earlier_scores(tmp_path, monkeypatch):
  scoring._write(tmp_path, {}, {"a/x": 0.5})
  write_text = pathlib.Path.write_text

  def half(path, text, *arguments, **options):
    write_text(path, text[: len(text) // 2], *arguments, **options)
    raise OSError("no space left")

  monkeypatch.setattr(pathlib.Path, "write_text", half)
  with pytest.raises(OSError, match="no space left"):
    scoring._write(tmp_path, {}, {"b/x": 0.5})
  monkeypatch.undo()
  assert scoring._write(tmp_path, {}, {}) == {"a/x": 0.5}


def words_of(config, folder, step):
  text = messages.closing_message(settings.read_train(config), folder, step)
  return text, shlex.split(text.rpartition("score it: ")[2])


def test_the_last_words_name_a_command_that_can_be_pasted(tmp_path):
  config = orz.get_config("tiny")
  folder = tmp_path / "my runs" / "orz"
  text, words = words_of(config, folder, config.train.steps)
  assert text.startswith(f"step 60 is saved in {folder}; to score it: python")
  assert words[:3] == ["python", "-m", "azr_jax.evaluate"]
  assert words[3:] == [
    "--config=configs/evaluate.py:problems_tiny",
    "--benchmark=problems",
    f"--data={config.evaluation.data}",
    f"--model={folder}",
    f"--workdir={folder}_scores",
  ]


def test_the_last_words_keep_the_arguments_of_the_chat_template(tmp_path):
  config = code_interpreter.get_config("qwen2.5-7b")
  given = '{"enable_thinking": false}'
  config.code_interpreter.chat_template_kwargs = given
  _, words = words_of(config, tmp_path, config.train.steps)
  assert f"--config.evaluate.chat_template_kwargs={given}" in words
  config.code_interpreter.prompt_format = "full"
  with pytest.raises(Invalid, match="'' unless prompt_format='chat'"):
    settings.read_train(config)


@pytest.mark.parametrize(
  "variant, questions, data, scored_by",
  [
    ("qwen2.5-7b", ("split:train",), "split:test", "questions"),
    (
      "qwen2.5-7b",
      ("split:q/train", "gym:gcd"),
      "split:q/test+gym:gcd",
      "questions",
    ),
    ("qwen2.5-7b", ("/q/train.jsonl",), "/q/test.jsonl", "questions"),
    ("qwen2.5-7b", ("bbh:/bbh",), "bbh:/bbh", "questions"),
    ("qwen2.5-7b", ("mine.jsonl",), sources.UNKNOWN, "questions"),
    ("tiny", ("gym:gcd",), "gym:gcd", "questions_tiny"),
  ],
)
def test_the_last_words_name_questions_that_were_held_out(
  tmp_path, variant, questions, data, scored_by
):
  config = code_interpreter.get_config(variant)
  config.code_interpreter.questions = questions
  text, words = words_of(config, tmp_path, config.train.steps)
  assert words[3:6] == [
    f"--config=configs/evaluate.py:{scored_by}",
    "--benchmark=questions",
    f"--data={data}",
  ]
  assert ("did not train on" in text) == (data == sources.UNKNOWN)


def test_a_run_that_was_stopped_says_that_it_resumes(tmp_path):
  text, words = words_of(azr.get_config("tiny"), tmp_path, 7)
  first, second = text.splitlines()
  assert first == f"{sigterm.STOPPED}: the same command resumes it"
  assert second.startswith("step 7 is saved in ")
  assert not any(word.startswith("--data") for word in words)


def test_scores_of_an_object_store_stay_on_this_machine(tmp_path):
  folder = storage.resolve(f"file://{tmp_path}/run")
  config = countdown.get_config("tiny")
  _, words = words_of(config, folder, 3)
  assert words[-2:] == [
    f"--model={tmp_path}/run",
    "--workdir=/tmp/run_scores",
  ]


@pytest.mark.parametrize(
  "content, message",
  [
    ('{"model": "other", "scores": {}}', "has scores of model='other'"),
    ('{"model": "m", "step": 3, "scores": {}}', "has scores of step=3"),
    ('{"model": "m"}', "expected results of azr_jax.evaluate"),
    ("[]", "expected a JSON object"),
    ('{"model": ', "expected a JSON object"),
    ("\xff", "expected a JSON object"),
  ],
)
def test_scores_of_something_else_are_never_joined(tmp_path, content, message):
  identity = {"model": "m", "step": 4, "data": "", "limit": 0}
  path = tmp_path / scoring.RESULTS
  path.write_text(content, encoding="latin-1")
  with pytest.raises(ValueError, match=message):
    scoring._write(tmp_path, identity, {"gsm8k/accuracy": 0.5})
  path.unlink()
  scoring._write(tmp_path, identity, {"one/accuracy": 0.5})
  joined = scoring._write(tmp_path, identity, {"two/accuracy": 0.25})
  assert joined == {"one/accuracy": 0.5, "two/accuracy": 0.25}


class CountingPolicy(scripted.Policy):
  """Samples one-letter responses and records their limits."""

  limits: list[list[int] | None] = []

  async def sample(self, prompts, n, seeds, max_new_tokens=None):
    self.limits.append(max_new_tokens)
    for index, _ in enumerate(prompts):
      yield index, 0, "a"


@pytest.mark.parametrize(
  "changes, name, limit",
  [
    ({}, "math500", 16_000),
    ({}, "livecodebench", 8096),
    ({}, "humaneval", 8096),
    ({}, "problems", None),
    ({"rollout.max_tokens": 2000}, "livecodebench", 2000),
    ({"evaluate.max_tokens": "math=100"}, "aime24", 100),
    ({"evaluate.max_tokens": "math=100"}, "gsm8k", None),
  ],
)
def test_each_benchmark_has_its_longest_response(
  changes, name, limit, monkeypatch, tmp_path
):
  config = evaluate.get_config("full")
  config.update_from_flattened_dict(changes)
  c = settings.read(settings.EvaluateSettings, config)
  policy = CountingPolicy()

  def run(benchmark, policy, executor, hosts, how, path, agent, say, styles_of):
    say(benchmark.name)
    prompts = [types.Prompt("a prompt", (1,)), types.Prompt("another", (2,))]
    answers = agent(policy, prompts, 1, [0, 1])
    return dict(enumerate(policy.loop.iterate(answers)))

  monkeypatch.setattr(runner, "run", run)
  said = []
  folder = stand_in(Run, folder=tmp_path, hosts=None, print_status=said.append)
  benchmark = registry.BENCHMARKS[name]
  found = scoring._score(
    benchmark,
    "",
    cast(Policy, policy),
    stand_in(Executor),
    folder,
    c,
    stand_in(ItemOptions),
  )
  assert len(found) == 2 and said == [benchmark.name]
  assert policy.limits.pop() == (None if limit is None else [limit] * 2)


@pytest.mark.parametrize(
  "value, words",
  [
    (
      "math=many",
      "evaluate.max_tokens='math=many': expected NAME=NUMBER between commas; "
      "'math=many' has no number above 0",
    ),
    ("maths=5", "benchmark 'maths': expected one of"),
  ],
)
def test_a_longest_response_that_is_none_is_named(value, words):
  config = evaluate.get_config("full")
  config.evaluate.max_tokens = value
  with pytest.raises(ValueError, match=re.escape(words)):
    settings.read(settings.EvaluateSettings, config)


def test_a_start_names_benchmarks_without_a_limit():
  config = evaluate.get_config("full")
  config.evaluate.max_tokens = "math=96"
  c = settings.read(settings.EvaluateSettings, config)
  opened = [(registry.BENCHMARKS[name], "") for name in ("aime24", "gsm8k")]
  printed = []
  run = stand_in(Run, print_status=printed.append)
  scoring._print_limits(opened, c, run)
  assert printed[1:] == [
    "evaluate.max_tokens='math=96' names neither gsm8k nor its group: "
    "responses have at most rollout.max_tokens=16000 tokens"
  ]


@pytest.mark.parametrize(
  "agents, most, words",
  [
    (
      (),
      32_000,
      [
        "aime24: responses have at most 16000 tokens, not "
        "rollout.max_tokens=32000 (evaluate.max_tokens)",
        "humaneval: responses have at most 8096 tokens, not "
        "rollout.max_tokens=32000 (evaluate.max_tokens)",
      ],
    ),
    ((), 8000, []),
    (
      ("text",),
      32_000,
      [
        "evaluate.max_tokens='all=8096,math=16000' has no effect: responses "
        "of agents have at most rollout.max_tokens=32000 tokens"
      ],
    ),
  ],
)
def test_a_start_says_which_responses_are_shorter(agents, most, words):
  config = evaluate.get_config("full")
  config.evaluate.agents = agents
  config.rollout.max_tokens = most
  c = settings.read(settings.EvaluateSettings, config)
  opened = [
    (registry.BENCHMARKS[name], agent)
    for name in ("aime24", "humaneval")
    for agent in agents or ("",)
  ]
  printed = []
  run = stand_in(Run, print_status=printed.append)
  scoring._print_limits(opened, c, run)
  assert printed == words
  if agents:
    assert scoring._longest_response(*opened[0], c) is None


def test_the_data_is_read_once_for_all_agents():
  config = evaluate.get_config("questions_tiny")
  config.evaluate.agents = ("text", "code_agent")
  c = settings.read(settings.EvaluateSettings, config)
  how = ItemOptions("", 2, c.evaluate.prompt_format, 1)
  paths = {"questions": "gym:gcd+gym:lcm"}
  said = []
  opened = scoring._open(
    "questions", paths, c.evaluate.agents, c, how, said.append
  )
  assert [agent for _, agent in opened] == ["text", "code_agent"]
  first, second = (
    items_lib.items_of(benchmark, how) for benchmark, _ in opened
  )
  assert all(a is b for a, b in zip(first, second, strict=True))
  assert len({benchmark.name for benchmark, _ in opened}) == 2
