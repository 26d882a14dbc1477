"""A teacher on a server writes conversations, with code that is executed."""

import contextlib
import json
import re
import subprocess
import sys

import pytest
import training
from chat_api import chat, serving
from typed import present

from azr_jax import export
from azr_jax.configs import evaluate as evaluate_config
from azr_jax.configs import trajectories as trajectories_config
from azr_jax.corpora import demonstrations
from azr_jax.lab.data import rejection_sampling, teacher
from azr_jax.lab.data.teacher import TeacherSettings
from azr_jax.tasks.questions import sources
from azr_jax.tools import code_blocks

KEY = {"KEY_OF_TEST": "sk-of-this-test"}
# One question has no answer, and the server refuses another.
SUMS = {"What is 3 + 4?": "7", "What is 20 + 3?": "23", "What is 1 + 1?": "2"}


def finished(text, reason="stop"):
  [choice] = chat(text)["choices"]
  choices = [{**choice, "finish_reason": reason}]
  return {"choices": choices, "usage": {"completion_tokens": 5}}


def teach(body):
  """Writes a script, invents its output, and believes the real one."""
  asked, *rest = [message["content"] for message in body["messages"]]
  a, b = re.findall(r"\d+", asked)
  if a == "1":
    return finished("<<<2>>> is", "length")
  if not rest:
    script = f"```python\nprint({a} + {b})\n```"
    return finished(f"Add.\n{script}\nCode Execution Results: 0\n<<<0>>>")
  return finished(
    f"So <<<{rest[-1].removeprefix('Code Execution Results: ')}>>>"
  )


def config_of(folder, address, **changes):
  path = folder / "questions.jsonl"
  lines = [
    {"id": text, "task": "bbh/sums", "text": text, "reference": repr(answer)}
    for text, answer in SUMS.items()
  ]
  path.write_text("".join(json.dumps(line) + "\n" for line in lines))
  config = trajectories_config.get_config("tiny")
  config.trajectories.questions = (str(path),)
  config.trajectories.solution_styles = ("code",)
  config.trajectories.samples = 2
  config.executor.workers = 1
  config.teacher.url, config.teacher.model = address, "big"
  config.teacher.key_variable = "KEY_OF_TEST"
  config.teacher.update(changes)
  return config


def sample(config, folder, environment=KEY):
  return rejection_sampling.sample(
    config, "embedded:code-tiny", str(folder), environment
  )


def test_scripts_run_and_what_the_teacher_invents_is_dropped(tmp_path):
  folder = tmp_path / "out"
  with serving(teach, [429, "cut", 503]) as server:
    config = config_of(tmp_path, server.url, concurrency=2)
    config.teacher.request = '{"top_p": 0.9, "max_tokens": null}'
    chosen = sample(config, folder)
    assert len(server.requests) == 3 + 2 * (2 + 2 + 1)
    paths, keys, bodies = zip(*server.requests, strict=True)
    assert {*paths} == {"/v1/chat/completions"}
    assert {*keys} == {"Bearer sk-of-this-test"}
    assert {body["top_p"] for body in bodies} == {0.9}
    assert {body["model"] for body in bodies} == {"big"}
    assert not any("max_tokens" in body for body in bodies)
    # Samples and turns have seeds of their own, the same each time.
    seeds = {body["seed"] for body in bodies}
    assert len(seeds) == 2 * (2 + 2 + 1)
    # A finished command asks nothing again, and the folder knows no key.
    count = len(server.requests)
    assert sample(config, folder) == chosen
    assert len(server.requests) == count
  texts = [f.read_text() for f in folder.rglob("*") if f.is_file()]
  assert len(texts) > 2 and not any("sk-of-this-test" in text for text in texts)
  assert demonstrations.read(folder / rejection_sampling.FILE) == chosen
  # Both samples of a sum are equal, and the third question has no good answer.
  assert [one.id for one in chosen] == [*SUMS][:2]
  assert [one.turns for one in chosen] == [
    (
      f"Add.\n```python\nprint({a} + {b})\n```",
      f"{code_blocks.OUTPUT_PREFIX}{a + b}{code_blocks.OUTPUT_SUFFIX}",
      f"So <<<{a + b}>>>",
    )
    for a, b in ((3, 4), (20, 3))
  ]
  assert chosen[0].prompt == "What is 3 + 4?\ncode\n"


def test_a_killed_command_asks_only_what_is_missing(tmp_path):
  folder = tmp_path / "out"
  with serving(teach) as server:
    config = config_of(tmp_path, server.url)
    chosen = sample(config, folder)
    records = folder / "code.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    again = [line for line in lines if b"20 + 3" not in line]
    records.write_bytes(b"".join(again) + lines[0][:20])
    server.requests.clear()
    assert sample(config, folder) == chosen
    assert len(server.requests) == 2 * 2


@pytest.mark.parametrize(
  "status, asked", [(400, "answered"), (401, "HTTP 401")]
)
def test_one_refused_question_costs_only_itself(tmp_path, status, asked):
  """A wrong key or model, in contrast, stops the command."""
  with serving(teach, [status]) as server:
    config = config_of(tmp_path, server.url, concurrency=1)
    if status == 400:
      assert len(sample(config, tmp_path / "out")) == 2
      record = json.loads(
        (tmp_path / "out" / "code.jsonl").read_text().splitlines()[0]
      )
      assert record["finish"] == [teacher.REFUSED, "stop"]
    else:
      with pytest.raises(
        RuntimeError, match=f"{asked}.*are kept, and the same"
      ):
        sample(config, tmp_path / "out")


@pytest.mark.parametrize(
  "changes, environment, message",
  [
    ({}, {}, "environment variable KEY_OF_TEST is not set"),
    ({"model": ""}, KEY, "teacher.model"),
    ({"url": "localhost"}, KEY, "teacher.url='localhost': expected an address"),
  ],
)
def test_what_is_missing_is_named_before_anything_is_asked(
  tmp_path, changes, environment, message
):
  config = config_of(tmp_path, "http://127.0.0.1:9", **changes)
  with pytest.raises(ValueError, match=message):
    sample(config, tmp_path / "out", environment)


def test_limits_of_a_conversation(context):
  """Of scripts, and of what they print."""
  script = "```python\nprint('x' * 5000)\n```"
  with serving(lambda body: finished(script)) as server:
    settings = TeacherSettings(url=server.url, model="big")
    asked = teacher.Teacher(
      teacher.ChatServer(server.url, "", 10.0, 0),
      "",
      teacher.request_of(settings, 0.5),
      context.executor,
      libraries=(),
      script_timeout_s=5.0,
      max_calls=2,
      max_output_chars=100,
    )
    turns, finish, tokens = asked.converse("Go on.", 3)
  assert (finish, tokens, len(turns)) == ("turns", 15, 5)
  assert turns[::2] == [script] * 3
  output = turns[1].removeprefix(code_blocks.OUTPUT_PREFIX).strip()
  assert len(output) == 100 + len("\n...\n") and output.startswith("x" * 50)
  bodies = [body for _, _, body in server.requests]
  assert [len(body["messages"]) for body in bodies] == [1, 3, 5]
  assert [body["seed"] for body in bodies] == [3, 4, 5]
  assert bodies[0]["temperature"] == 0.5


# The tiny model reads a script's output after a blank line.
TEMPLATE = (
  "{% for m in messages %}{% if m.role == 'user' and not loop.first %}"
  "{{ '\n\n' + m.content + '\n\n' }}{% else %}{{ m.content }}{% endif %}"
  "{% endfor %}"
)


@contextlib.contextmanager
def serving_tiny(folder):
  """`azr_jax.serve` with the tiny model; yields its address."""
  export.export(
    evaluate_config.get_config(), "embedded:code-tiny", str(folder), "float32"
  )
  (folder / "tokenizer.model").unlink()
  path = folder / "tokenizer_config.json"
  written = json.loads(path.read_text()) | {"chat_template": TEMPLATE}
  path.write_text(json.dumps(written))
  flags = training.flags(
    "configs/serve.py:small",
    {
      "rollout.slots": 8,
      "rollout.prompt_buckets": "(192,)",
      "rollout.max_tokens": 144,
    },
  )
  server = subprocess.Popen(
    [sys.executable, "-m", "azr_jax.serve", f"--model={folder}", "--port=0"]
    + ["--name=tiny", *flags],
    cwd=training.ROOT,
    env=training.environment(),
    stderr=subprocess.PIPE,
    text=True,
  )
  try:
    assert server.stderr is not None
    found = None
    while found is None and (line := server.stderr.readline()):
      found = re.search(r"serving tiny at (\S+)", line)
    assert found, server.wait(10)
    yield found[1]
  finally:
    server.terminate()
    server.communicate(timeout=60)


@pytest.mark.slow
def test_our_own_server_is_a_teacher(tmp_path, on_one_device):
  """The tiny model behind `azr_jax.serve` has scripts run, and is right."""
  pytest.importorskip("reasoning_gym")
  with serving_tiny(tmp_path / "model") as url:
    config = config_of(tmp_path, url, model="tiny", max_tokens=100)
    config.trajectories.questions = ("gym:gcd", "gym:spell_backward")
    config.trajectories.count = 6
    chosen = sample(config, tmp_path / "out")
  with_code = [one for one in chosen if len(one.turns) == 3]
  assert len(with_code) > 3
  questions = sources.read_all(config.trajectories.questions, 6, 2)
  references = {question.id: question.reference for question in questions}
  believed = 0
  for one in with_code:
    answer = present(code_blocks.find_answer(one.turns[-1]))
    assert answer in references[one.id]
    believed += answer in one.turns[1]
  assert believed > 3
