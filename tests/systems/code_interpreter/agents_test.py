"""The four agents with scripted models; their code runs in the executor."""

import types as plain_types

import numpy as np
import pytest
import scripted
from typed import present

from azr_jax import types
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.systems.code_interpreter import agents, checker, phases
from azr_jax.systems.code_interpreter import script_complexity as complexity
from azr_jax.systems.code_interpreter.codesteer import (
  CodeSteer,
  CodeSteerSettings,
)
from azr_jax.tasks import templates as templates_lib
from azr_jax.tasks.questions import prompts
from azr_jax.tasks.questions.question import Question
from azr_jax.tools.python_tool import PythonTool, PythonToolSettings


class Letters:
  eos_ids = (0,)

  def encode(self, text):
    return list(map(ord, text))

  def decode(self, ids):
    return "".join(map(chr, ids))


class ScriptedPolicy(scripted.Policy):
  """Responds with the next reply listed for a key that the prompt contains."""

  tokenizer = Letters()

  def __init__(self, replies, longest=10_000):
    self.replies = {key: list(texts) for key, texts in replies.items()}
    self.longest = longest
    self.asked = []
    # The phase and the temperature of each text in `asked`.
    self.calls = []

  def prompt(self, text, task=None):
    return types.Prompt(text, tuple(self.tokenizer.encode(text)), task)

  def fits(self, prompt):
    return len(prompt.text) <= self.longest

  @scripted.samples
  def sample(
    self,
    prompts,
    n=1,
    prompt_numbers=None,
    tool_runner=None,
    temperature=None,
    call=None,
  ):
    del tool_runner
    assert len(present(prompt_numbers)) == len(prompts)
    for index, prompt in enumerate(prompts):
      self.asked.append(prompt.text)
      self.calls.append((call, temperature))
      key = next(key for key in self.replies if key in prompt.text)
      for sample in range(n):
        parts = self.replies[key].pop(0)
        parts = (parts,) if isinstance(parts, str) else parts
        mask = [turn % 2 == 0 for turn, part in enumerate(parts) for _ in part]
        ids = self.tokenizer.encode("".join(parts))
        completion = types.Completion(
          np.array(ids, np.int32),
          np.zeros(len(ids), np.float32),
          np.array(mask),
          "stop",
          "".join(parts),
        )
        yield index, sample, completion


STEER = CodeSteerSettings(check_tries=1, check_generations=1)
SANDBOX = ExecutorSettings(timeout_s=3.0)


def question(text):
  return plain_types.SimpleNamespace(question=text)


def answers(
  executor,
  agent,
  policy,
  samples=1,
  questions=("six by seven",),
  task_of=question,
  steer=STEER,
  prompt_format="compact",
  templates=None,
):
  hosts = Hosts(1.0)
  settings = PythonToolSettings(max_output_tokens=100)
  tool = PythonTool(
    policy.tokenizer,
    executor,
    hosts,
    importable=SANDBOX.libraries,
    timeout_s=SANDBOX.timeout_s,
    **vars(settings),
  )
  jobs = SharedJobs(executor, hosts)
  steered = CodeSteer(
    jobs, prompt_format, tool.libraries, None, templates, **vars(steer)
  )
  ask = agents.make(agent, tool, jobs, steered.ask)
  prompts = [policy.prompt(text, task_of(text)) for text in questions]
  stream = policy.loop.iterate(
    ask(policy, prompts, samples, range(len(prompts)))
  )
  return {(index, sample): answer.text for index, sample, answer in stream}


def script(code):
  return f"```python\n{code}\n```"


@pytest.mark.parametrize(
  "reply, ends",
  [
    (script("print(6 * 7)"), "<<<42>>>"),
    (script("print('so <<<43>>>')"), "<<<43>>>"),
    (script("result = 44"), "<<<44>>>"),
    (script("answer = 45\nAnswer = 46"), "<<<46>>>"),
    (script("x = 1"), "<<<>>>"),
    ("no code <<<47>>>", "<<<47>>>"),
  ],
)
def test_all_code_answers_with_what_its_script_prints(executor, reply, ends):
  policy = ScriptedPolicy({"six": [reply] * 2})
  texts = answers(executor, "code", policy, samples=2)
  assert set(texts) == {(0, 0), (0, 1)}
  assert all(text.endswith(ends) for text in texts.values())


def test_text_and_code_agent_answer_in_their_last_reply(executor):
  policy = ScriptedPolicy({"six": ["so <<<42>>>"]})
  assert answers(executor, "text", policy) == {(0, 0): "so <<<42>>>"}
  spoken = (script("print(1)"), "\n\n<<<13>>>\n\n", "so <<<42>>>")
  policy = ScriptedPolicy({"six": [spoken]})
  assert answers(executor, "code_agent", policy) == {(0, 0): "so <<<42>>>"}


def test_codesteer_repeats_until_the_guidance_accepts(executor):
  policy = ScriptedPolicy(
    {
      "less likely to go wrong": ["<<<Code>>>"],
      "You guide a solver": [
        "<<<try the other way>>>",
        "<<<Text>>>",
        "no mark, so Terminate",
      ],
      "checks the answer below": [script("print('looks', 'odd')")] * 3,
      "six": [script("print(41)"), script("print(42)"), "so <<<42>>>"],
    }
  )
  texts = answers(executor, "steer", policy)
  assert texts == {(0, 0): "so <<<42>>>"}
  # Advice applies until the guidance model names a solution style.
  advised = ["Advice" in text for text in policy.asked if "solver" not in text]
  assert sum(advised) == 1
  assert any("try the other way" in text for text in policy.asked)
  steered = [text for text in policy.asked if "You guide" in text]
  assert "What its code printed: 41\n" in steered[0]
  assert "printed: looks odd" in steered[0]
  assert "the code may be too simple" in steered[0]


class ChatLetters(Letters):
  def apply_chat_template(self, messages, *_, **__):
    return f"<chat>{messages[-1]['content']}"


def test_codesteer_s_own_requests_keep_their_chats_beside_templates(
  executor, tmp_path
):
  for style in ("text", "code"):
    (tmp_path / f"question_{style}.txt").write_text("New words: {QUESTION}")
  policy = ScriptedPolicy(
    {
      "less likely to go wrong": ["<<<Text>>>"],
      "You guide a solver": ["<<<Return Answer>>>"],
      "checks the answer below": ["no script"],
      "six": ["so <<<42>>>"],
    }
  )
  policy.tokenizer = ChatLetters()
  answers(
    executor,
    "steer",
    policy,
    prompt_format="chat",
    templates=templates_lib.read(str(tmp_path), prompts.FILES),
  )
  solver = [text for text in policy.asked if text.startswith("New words: six")]
  requests = [text for text in policy.asked if text.startswith("<chat>")]
  assert len(solver) == 1 and len(requests) == 3
  assert len(policy.asked) == 4


class DrawnReplies(ScriptedPolicy):
  """Draws each reply by the phase and the prompt's number."""

  def __init__(self, arrivals=None):
    super().__init__({})
    self.names = []
    if arrivals is not None:
      self.sample = arrivals.delay(self.sample)

  @scripted.samples
  def sample(self, prompts, n, prompt_numbers, temperature=None, call=None):
    for index, (prompt, seed) in enumerate(
      zip(prompts, prompt_numbers, strict=True)
    ):
      number = present(call) - phases._FIRST_PHASE
      self.names.append((seed, number))
      draw = np.random.default_rng((seed, number))
      role = next(key for key in DRAWN if key in prompt.text)
      text = DRAWN[role][draw.integers(len(DRAWN[role]))].format(number)
      ids = np.array(self.tokenizer.encode(text), np.int32)
      logprobs = np.zeros(len(ids), np.float32)
      done = types.Completion(ids, logprobs, ids > 0, "stop", text)
      yield index, 0, done


DRAWN = {
  "less likely": ["<<<Text>>>", "<<<Code>>>"],
  "You guide": ["<<<Text>>>", "<<<Code>>>", "<<<more>>>", "<<<Terminate>>>"],
  "checks the answer": [script("print({})"), script("1 / 0"), "no script"],
  "": [script("print('<<<{}>>>')"), "<<<{}>>>"],
}


def drawn(executor, arrivals=None):
  """Returns the answers of CodeSteer, and all calls in order."""
  policy = DrawnReplies(arrivals)
  steer = CodeSteerSettings(rounds=3, check_tries=2, check_generations=2)
  texts = answers(
    executor, "steer", policy, 2, ("one", "two", "three"), steer=steer
  )
  return texts, policy.names


def test_codesteer_gives_the_answers_that_it_gave_phase_by_phase(executor):
  texts, names = drawn(executor)
  seeds = [seed for seed, _ in names]
  found = {
    (index, sample): (text[-8:].strip(), seeds.count(index * 2 + sample))
    for (index, sample), text in texts.items()
  }
  # Each answer and the calls of its conversation, when all conversations took
  # each phase together.
  assert found == {
    (0, 0): ("<<<1>>>", 5),
    (0, 1): ("<<<9>>>", 13),
    (1, 0): ("<<<9>>>", 13),
    (1, 1): ("<<<1>>>", 4),
    (2, 0): ("<<<9>>>", 15),
    (2, 1): ("<<<1>>>", 6),
  }


def test_conversations_with_codesteer_do_not_wait_for_each_other(executor):
  texts, names = drawn(executor)
  for seed in range(2):
    shuffled, calls = drawn(executor, scripted.Arrivals(seed))
    assert shuffled == texts
    assert sorted(calls) == sorted(names) and calls != names
  # One conversation starts its second round while another is in its first.
  second_round = min(i for i, (_, number) in enumerate(calls) if number > 7)
  assert any(number < 8 for _, number in calls[second_round:])


def test_codesteer_ends_after_its_rounds_and_with_prompts_that_are_long(
  executor,
):
  policy = ScriptedPolicy(
    {
      "less likely": ["<<<Text>>>"],
      "You guide": ["<<<Text>>>"] * 5,
      "checks the answer": ["no script"] * 5,
      "six": [f"<<<{n}>>>" for n in range(6)],
    }
  )
  assert answers(executor, "steer", policy) == {(0, 0): "<<<5>>>"}
  policy = ScriptedPolicy({"six": ["<<<1>>>"]}, longest=50)
  assert answers(executor, "steer", policy) == {(0, 0): "<<<1>>>"}


def checks_of(executor, written, **settings):
  """Returns the check's report to the guidance model, and the policy."""
  policy = ScriptedPolicy(
    {
      "less likely": ["<<<Text>>>"],
      "You guide": ["<<<Return Answer>>>"],
      "checks the answer": written,
      "six": ["<<<42>>>"],
    }
  )
  steer = CodeSteerSettings(report_tokens=300, **settings)
  assert answers(executor, "steer", policy, steer=steer) == {(0, 0): "<<<42>>>"}
  (told,) = [text for text in policy.asked if "You guide" in text]
  told = told.partition("A check of the answer printed: ")[2]
  return told.partition("\nIts code:")[0], policy


@pytest.mark.parametrize(
  "written, told",
  [
    # A response without a script is followed by another, up to five per try.
    (["no", "no", "no", "no", script("print('good')")], "good"),
    (["no"] * 5, checker.NO_SCRIPT),
    # A failed script is followed by another, up to three.
    ([script("1 / 0"), script("x ="), script("print('third')")], "third"),
    ([script("1 / 0"), "no", "no", script("print('late')")], "late"),
    ([script("1 / 0")] + ["no"] * 5, checker.NO_SCRIPT),
    # A check whose output is too long counts as not working.
    ([script("print('x' * 301)")], checker.NOT_WORKING),
    ([script("print('x' * 300)")], "x" * 300),
  ],
)
def test_codesteer_checks_by_three_scripts_of_five_responses(
  executor, written, told
):
  shown, policy = checks_of(executor, written)
  assert shown == told
  assert not policy.replies["checks the answer"]  # No reply is left.


def test_the_last_failed_check_is_reported_with_its_errors(executor):
  fail = [script(f"print({n})\n1 / 0") for n in range(3)]
  shown, _ = checks_of(executor, fail)
  assert shown.startswith("2\n") and "ZeroDivisionError" in shown
  shown, policy = checks_of(
    executor, [*fail, "not asked"], check_tries=2, check_generations=1
  )
  assert (
    shown.startswith("1\n") and len(policy.replies["checks the answer"]) == 2
  )


@pytest.mark.parametrize(
  "temperature, used", [(0.0, 0.0), (-1.0, None), (0.3, 0.3)]
)
def test_only_the_solver_has_a_temperature_of_its_own(
  executor, temperature, used
):
  _, policy = checks_of(
    executor, [script("print(1)")], solver_temperature=temperature
  )
  solved = {
    (text, of_call[1])
    for text, of_call in zip(policy.asked, policy.calls, strict=True)
  }
  for text, of_text in solved:
    is_solver = not any(
      words in text for words in ("You guide", "checks the", "less likely")
    )
    assert of_text == (used if is_solver else None)


def test_random_keys_do_not_depend_on_the_other_conversations(executor):
  """A phase's index does not depend on how many tries the checker needed."""
  _, quick = checks_of(executor, [script("print(1)")])
  _, slow = checks_of(executor, [script("1 / 0"), "no", script("print(1)")])
  phases_of = [
    [
      call
      for text, (call, _) in zip(p.asked, p.calls, strict=True)
      if "You guide" in text
    ]
    for p in (quick, slow)
  ]
  assert phases_of[0] == phases_of[1]
  numbers = [call for call, _ in slow.calls]
  assert (
    len(set(numbers)) == len(numbers) and min(numbers) >= phases._FIRST_PHASE
  )


@pytest.mark.parametrize("agent", agents.AGENTS)
def test_every_agent_answers_the_questions_of_training(executor, agent):
  policy = ScriptedPolicy(
    {
      "less likely to go wrong": ["<<<Text>>>"],
      "You guide a solver": ["<<<Return Answer>>>"],
      "checks the answer": ["no script"],
      "six": ["so <<<42>>>"],
    }
  )
  texts = answers(
    executor,
    agent,
    policy,
    task_of=lambda text: Question("1", "gym/gcd", text, "'42'"),
  )
  assert texts == {(0, 0): "so <<<42>>>"}


def test_an_unknown_agent_is_named(executor):
  with pytest.raises(ValueError, match="agent 'loud': expected one of"):
    answers(executor, "loud", ScriptedPolicy({}))


@pytest.mark.parametrize(
  "code, score, kinds",
  [
    ("print(1)", 0.0, ()),
    ("x = 1 + 2 * 3", 0.5, ("numerical",)),
    ("for i in range(3):\n  print(i)", 1.0, ("searching",)),
    (
      "try:\n  x = eval('1')\nexcept ValueError:\n  x = 0",
      2.0,
      ("symbolic",),
    ),
    ("if x:\n  pass\nelif y:\n  pass\nelse:\n  z = f'{x}'", 3.0, ("symbolic",)),
    ("import itertools", 0.0, ("searching",)),
    ("not python (", 0.0, ()),
  ],
)
def test_how_much_a_script_computes(code, score, kinds):
  measured = complexity.measure(code)
  assert measured.score == score
  for kind in ("searching", "symbolic", "numerical"):
    assert getattr(measured, kind) == (kind in kinds)
  assert ("too simple" in measured.summary) == (score <= 2)
