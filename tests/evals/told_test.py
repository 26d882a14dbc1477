"""Models that are told how to begin, and rules that name styles."""

import dataclasses
import re
from typing import cast

import numpy as np
import pytest
import scripted
from letters import Letters
from typed import present, stand_in

from azr_jax import types
from azr_jax.configs import evaluate
from azr_jax.evals import items as items_lib
from azr_jax.evals import questions, registry, runner, styles, told
from azr_jax.evals.benchmark import Item, ItemOutcome
from azr_jax.evals.items import ItemOptions
from azr_jax.executor import Executor, futures
from azr_jax.parallel.hosts import Hosts
from azr_jax.rollout.policy import Policy, short_single_turn, single_turn
from azr_jax.tasks.mathematics import prompts as mathematics
from azr_jax.tasks.templates import Templates
from azr_jax.trainer import settings

TRIPLET = {"type": "triplet", "code": "f", "input": "1", "output": "2"}
REFERENCE = {"nums": [3, 4], "target": 12, "task": TRIPLET}
ITEM = Item("7", "why?", REFERENCE, "deduction")


class ChatLetters(Letters):
  has_chat_template = True

  def apply_chat_template(self, messages, *_, is_continued=False, **__):
    text = "".join(f"<{m['role']}>{m['content']}" for m in messages)
    return text if is_continued else f"{text}<assistant>"


class OneAnswer(scripted.Policy):
  """Answers "rest", and remembers the prompts."""

  tokenizer = ChatLetters()

  def __init__(self):
    self.asked = []

  def prompt(self, text, task=None):
    return types.Prompt(text, tuple(self.tokenizer.encode(text)), task)

  def fits(self, prompt):
    return True

  @scripted.samples
  def sample(self, prompts, n=1, prompt_numbers=None, max_new_tokens=None):
    self.asked += prompts
    ids = np.array(self.tokenizer.encode("rest"), np.int32)
    for index in range(len(prompts)):
      logprobs = np.zeros(len(ids), np.float32)
      done = types.Completion(ids, logprobs, ids >= 0, "stop", "rest")
      yield index, 0, done


PROMPTS = Templates("prompts", mathematics.FILES, {"math": "M {QUESTION}"})
TEXT_AGENT = questions.answered_by(registry.find("questions"), "text")


@pytest.mark.parametrize(
  "benchmark, prompt_format",
  [
    (registry.find("programs_heldout"), "compact"),
    (registry.find("programs_heldout"), "full"),
    (registry.find("problems"), "compact"),
    (registry.find("countdown"), "compact"),
    (registry.find("countdown"), "chat"),
    (registry.find("questions"), "compact"),
    (TEXT_AGENT, "full"),
    (TEXT_AGENT, "chat"),
    (registry.find("gsm8k"), "plain"),
    (registry.find("gsm8k"), "chat"),
    (registry.find("humaneval"), "full"),
    (registry.find("problems"), PROMPTS),
  ],
)
def test_what_it_is_told_reaches_the_model_and_the_grade(
  benchmark, prompt_format, tmp_path
):
  rule = tmp_path / "begin.py"
  rule.write_text("def so(id, subset): return f'So {id} {subset}:'")
  graded = []

  def grade(executor, item, text):
    graded.append(text)
    return futures.done(ItemOutcome(text.endswith("rest")))

  asked = []
  for prefill, agent in (
    ("", single_turn),
    ("So 7 deduction:", single_turn),
    (f"{rule}:so", short_single_turn(9)),
  ):
    how = ItemOptions("", 0, prompt_format, 1, prefill=told.read(prefill))
    policy = OneAnswer()
    chosen = dataclasses.replace(
      benchmark.with_items([ITEM]), grade=grade, summarize=None
    )
    scores = runner.run(
      chosen,
      cast(Policy, policy),
      stand_in(Executor, timeout_s=1.0),
      Hosts(9.0),
      how,
      None,
      agent,
    )
    assert scores[f"{benchmark.name}/pass@1/unbiased"] == 1
    asked += policy.asked
    longest = items_lib.longest_prompt(chosen, how, policy.tokenizer)
    assert longest == len(policy.tokenizer.encode_prompt(policy.asked[0].text))
  plain, text, by_rule = asked
  assert by_rule == text
  assert text.text == f"{plain.text}So 7 deduction:"
  assert text.prefill == "So 7 deduction:" and not plain.prefill
  assert graded == ["rest", *["So 7 deduction:rest"] * 2]


class Fences(ChatLetters):
  """Letters, but a fence is one token, and so is one behind a line break."""

  def encode(self, text):
    for fence, letter in (("\n```", "F"), ("```py", "f")):
      text = text.replace(fence, letter)
    return super().encode(text)


def test_no_token_of_a_beginning_starts_in_the_prompt():
  tokenizer = Fences()
  begun = tokenizer.encode("```py")
  assert len(begun) == 1 and tokenizer.encode("a\n```py")[-1:] != begun
  ids = items_lib.prompt_ids("a\n```py", "```py", tokenizer)
  assert ids == (*tokenizer.encode_prompt("a\n"), *begun)
  for text, prefill in (("a\n```py", ""), ("a\n```py </s>", "```py")):
    whole = tuple(tokenizer.encode_prompt(text))
    assert items_lib.prompt_ids(text, prefill, tokenizer) == whole


@pytest.mark.parametrize(
  "code, message",
  [
    ("def so(reference): return ''", "takes 'reference': expected some of"),
    ("def so(id): return 7", "item 7: returned 7: expected a text"),
    ("def so(id): return id[9]", "IndexError: string index out of range (b"),
    ("", "has no function or class 'so'"),
  ],
)
def test_a_rule_of_beginnings_that_fails_is_named(code, message, tmp_path):
  rule = tmp_path / "begin.py"
  rule.write_text(code)
  with pytest.raises(ValueError, match=re.escape(message)) as caught:
    told.read(f"{rule}:so")(ITEM)
  assert "\n" not in str(caught.value) and "prefill=" in str(caught.value)


@pytest.mark.parametrize("text", ["Answer:yes", "so 1.5:x y", "<think>\n"])
def test_a_text_with_a_colon_is_a_text(text):
  assert told.read(text)(ITEM) == text


def test_codesteer_is_not_told_to_begin():
  config = evaluate.get_config("questions_tiny")
  config.evaluate.prefill = "```python\n"
  settings.read(settings.EvaluateSettings, config)
  config.evaluate.agents = ("code_agent", "steer")
  with pytest.raises(ValueError, match="expected '' with agent 'steer', which"):
    settings.read(settings.EvaluateSettings, config)


RECORD = {
  "id": "7",
  "question": "why?",
  "responses": ["so 3", "¡Direct!", ""],
  "num_tool_calls": [1, 0, 0],
}


def test_the_first_word_is_a_style():
  with styles.open_rule(styles.FIRST_WORD) as rule:
    assert present(rule)(RECORD) == ["so", "direct", styles.EMPTY]
    talks = {"conversations": ["Then so 3", "x", "```python"]}
    assert present(rule)(RECORD | talks) == ["then", "x", "python"]


RULES = """
def tools(completion, num_tool_calls):
  return f"{len(completion)} {num_tool_calls}"
def fails(completion): return str(1 / len(completion))
def empty(completion): return ""
def asks(answer): return answer
"""


def test_a_rule_of_styles_runs_on_its_own_and_its_failures_are_named(tmp_path):
  file = tmp_path / "rules.py"
  file.write_text(RULES)
  with styles.open_rule(f"{file}:tools") as rule:
    assert present(rule)(RECORD) == ["4 1", "8 0", "0 0"]
  for name, message in (
    ("fails", "item 7: ZeroDivisionError: division by zero"),
    ("empty", "item 7: returned '': expected the name of a style"),
    ("asks", "takes 'answer': expected some of"),
  ):
    with (
      pytest.raises(ValueError, match=message) as caught,
      styles.open_rule(f"{file}:{name}") as rule,
    ):
      present(rule)(RECORD)
    assert "\n" not in str(caught.value) and "style=" in str(caught.value)
  config = evaluate.get_config("greedy")
  config.evaluate.style = f"{file}:missing"
  with pytest.raises(ValueError, match="evaluate.style=.*no function or class"):
    settings.read(settings.EvaluateSettings, config)
