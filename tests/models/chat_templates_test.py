"""Chat templates render as in transformers, with limits and a fixed date."""

import datetime
import itertools
import os
import types
from typing import Any

import pytest
import tokenizers as hf_tokenizers
import transformers

from azr_jax.functions.process import Closed
from azr_jax.models import chat_templates, template_rendering
from azr_jax.models.tokenizers import HuggingFaceTokenizer

CHAT = (
  "{{ bos_token }}{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
  "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}"
  "{% if add_generation_prompt %}<assistant>{% endif %}"
)
MESSAGES = [
  {"role": "user", "content": " é 中? "},
  {"role": "assistant", "content": "yes"},
]
TOOL = {"type": "function", "function": {"name": "count"}}


@pytest.fixture(scope="module")
def theirs():
  return transformers.PreTrainedTokenizerFast(
    tokenizer_object=hf_tokenizers.ByteLevelBPETokenizer()._tokenizer,
    bos_token="<s>",
    eos_token="</s>",
  )


@pytest.fixture
def ours(theirs):
  return HuggingFaceTokenizer(theirs, [theirs.eos_token_id])


@pytest.mark.parametrize("is_answered", [False, True])
def test_the_text_is_that_of_transformers(theirs, ours, is_answered):
  theirs.chat_template = {"default": CHAT, "tool_use": "tools: " + CHAT}
  for tools in ([], [TOOL]):
    assert ours.apply_chat_template(
      MESSAGES, is_answered, tools
    ) == theirs.apply_chat_template(
      MESSAGES,
      tools=tools or None,
      tokenize=False,
      add_generation_prompt=not is_answered,
    )


@pytest.mark.parametrize(
  "template, problem",
  [
    ("{{ raise_exception('no tools') }}", r"\(TemplateError: no tools\)$"),
    ("{{ 'x }}", "TemplateSyntaxError"),
  ],
)
def test_a_template_that_fails_is_refused(theirs, ours, template, problem):
  theirs.chat_template = template
  with pytest.raises(ValueError, match=problem) as error:
    ours.apply_chat_template("hello")
  assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
  "template, problem",
  [
    ("{{ 'a' * 3000000000 }}", "less than 1073741824 bytes"),
    pytest.param(
      "{% set ns = namespace(x='a') %}{% for i in range(60) %}"
      "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
      "less than 1073741824 bytes",
      marks=pytest.mark.slow,  # Fills a gigabyte of memory.
    ),
    ("{{ 'a' * 20000000 }}", "20000000 characters: expected at most"),
  ],
)
def test_a_template_that_grows_fails(theirs, ours, template, problem):
  theirs.chat_template = template
  with pytest.raises(chat_templates.RenderingFailed, match=problem):
    ours.apply_chat_template("hello")


def test_a_template_that_does_not_end_is_stopped(theirs, ours, monkeypatch):
  monkeypatch.setattr(chat_templates, "_TIMEOUT_S", 0.5)
  theirs.chat_template = (
    "{% set all = range(99999) | list %}{% for i in all %}"
    "{% for j in all %}{% endfor %}{% endfor %}"
  )
  with pytest.raises(chat_templates.RenderingFailed, match="not done in 0.5 s"):
    ours.apply_chat_template("hello")
  theirs.chat_template = CHAT
  monkeypatch.undo()
  assert ours.apply_chat_template("hello") == "<s><user>hello<assistant>"


def test_a_template_sees_the_date_that_is_fixed(theirs, ours):
  theirs.chat_template = "{{ strftime_now('%d %b %Y') }}"
  fixed = ours.dated(datetime.datetime(2024, 7, 26))
  assert fixed.apply_chat_template("hello") == "26 Jul 2024"
  assert ours.apply_chat_template("hello") != "26 Jul 2024"


def test_outside_a_run_a_template_sees_the_clock(theirs):
  theirs.chat_template = "{{ strftime_now('%d %b %Y') }}"
  days = (datetime.datetime(2026, 1, day) for day in (30, 31))
  ours = HuggingFaceTokenizer(
    theirs, [theirs.eos_token_id], now=lambda: next(days)
  )
  assert ours.apply_chat_template("hello") == "30 Jan 2026"
  assert ours.apply_chat_template("hello") == "31 Jan 2026"


def test_without_proc_memory_is_not_limited(tmp_path, monkeypatch):
  monkeypatch.setattr(template_rendering, "_STATM", tmp_path / "statm")
  now = datetime.datetime(2026, 1, 30)
  message = {"role": "user", "content": "hello"}
  made = template_rendering.render(
    "{{ messages[0].content }}", {}, [message], now, {}
  )
  assert made == {"text": "hello"}


class Processes:
  """Starts fake processes that echo the calls or follow a script."""

  def __init__(self, events):
    """Takes the event of each `receive` after the start; None is a reply."""
    self.events, self.started = iter(events), []

  def __call__(self, functions, memory_gib):
    self.started.append(FakeProcess(self.events))
    return self.started[-1]


class FakeProcess:
  """A process that replies to each call immediately and in order."""

  def __init__(self, events):
    self.events, self.is_ended = events, False
    self.read_fd, self.write_fd = os.pipe()
    os.write(self.write_fd, b"x")  # Makes the pipe always readable.
    self.replies: list[dict[str, Any]] = [{"signatures": [], "pid": 1}]

  def call(self, number, index, arguments):
    made = {"text": arguments["text"]}
    self.replies.append({"number": number, "value": made, "seconds": 0.0})

  def has_unsent(self):
    return False

  def receive(self):
    event = next(self.events, None) if "number" in self.replies[0] else None
    if event == "incomplete":
      return []
    if event:
      raise event
    return [self.replies.pop(0)]

  def end(self):
    os.close(self.read_fd)
    os.close(self.write_fd)
    self.is_ended = True


@pytest.fixture(name="renderer")
def make_renderer(monkeypatch):
  """Returns a function from events to a renderer and its processes."""
  made = []

  def make(*events):
    processes = Processes(events)
    monkeypatch.setattr(chat_templates, "Process", processes)
    made.append(chat_templates._Renderer())
    return made[-1], processes.started

  yield make
  for renderer in made:
    renderer._end()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError()])
def test_an_interrupted_call_ends_its_process(renderer, error):
  renders, started = renderer(error)
  with pytest.raises(type(error)):
    renders.call({"text": "first"})
  assert renders.call({"text": "second"}) == {"text": "second"}
  assert [process.is_ended for process in started] == [True, False]


def test_a_reply_answers_its_own_call(renderer):
  renders, [*_] = renderer()
  renders.call({"text": "first"})
  renders._process.call(0, 0, {"text": "old"})
  assert renders.call({"text": "second"}) == {"text": "second"}


def test_a_call_is_sent_to_a_second_process_if_the_first_ends(renderer):
  renders, started = renderer(Closed())
  assert renders.call({"text": "hello"}) == {"text": "hello"}
  assert [process.is_ended for process in started] == [True, False]


def test_a_template_whose_process_ends_twice_fails(
  theirs, ours, renderer, monkeypatch
):
  renders, started = renderer(Closed(), Closed())
  monkeypatch.setattr(chat_templates, "_RENDERER", renders)
  theirs.chat_template = CHAT
  monkeypatch.setattr(
    FakeProcess,
    "call",
    lambda self, number, *_: self.replies.append({"number": number}),
  )
  with pytest.raises(chat_templates.RenderingFailed, match="ended 2 times"):
    ours.apply_chat_template("hello")
  assert [process.is_ended for process in started] == [True, True]


def test_a_stall_of_the_machine_is_not_counted(renderer, monkeypatch):
  renders, _ = renderer("incomplete", "incomplete")
  clock = types.SimpleNamespace(monotonic=itertools.count(0, 100).__next__)
  monkeypatch.setattr(chat_templates, "time", clock)
  assert renders.call({"text": "hello"}) == {"text": "hello"}
