"""Lists every reader of model text in the trusted processes, by name.

A reader takes a text that a model wrote or that a program reported. It must
take linear time on any text, because the trainer waits for it without a
timeout. `tests/complexity/readers_test.py` fails if a module that parses text
is neither here nor in `TRUSTED`.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from azr_jax.evals import styles
from azr_jax.executor import comparison, literals, scripts, source_limits
from azr_jax.executor.job import Result
from azr_jax.executor.pool import verdict
from azr_jax.grading import (
  answer_tags,
  expressions,
  programs,
  values,
)
from azr_jax.grading.gym import grader as gym
from azr_jax.grading.literals import are_literal_arguments, arguments_text
from azr_jax.grading.mathematics import extraction
from azr_jax.grading.mathematics import grader as mathematics
from azr_jax.grading.symbench import grader as symbench
from azr_jax.run import text_monitor
from azr_jax.systems.azr.extensions import composite, guide, rewriting
from azr_jax.systems.code_interpreter import script_complexity
from azr_jax.systems.custom import sandboxed
from azr_jax.tasks.mathematics import prompts as mathematics_prompts
from azr_jax.tasks.programs import environments, parsing, program_key
from azr_jax.tools import code_blocks, tool_calls
from tests.complexity import readings as r
from tests.complexity.texts import (
  CALLS,
  COMMON,
  MATHEMATICS,
  PIECES,
  PYTHON,
  SYNTAX,
  VALUES,
  Texts,
)


@dataclasses.dataclass(frozen=True)
class Reader:
  """A reader, with the texts to try it on.

  Attributes:
    read: reads a text.
    modules: the package's files that it covers; a folder stands for all of its
      files.
    texts: the texts to try it on.
    max_chars: limit above which texts are rejected unread, or None.
    frame: text to put before and after each text.
    errors: exceptions that it may raise.
  """

  read: Callable[[str], Any]
  modules: tuple[str, ...]
  texts: Texts = dataclasses.field(default_factory=lambda: COMMON)
  max_chars: int | None = None
  frame: tuple[str, str] = ("", "")
  errors: tuple[type[Exception], ...] = ()


_ANSWER = ("so</think>\n<answer>", "</answer>")
_PYTHON_FENCE = ("so</think>\n<answer>```python\n", "\n```</answer>")
_LIMIT: Any = {
  "max_chars": source_limits.MAX_CHARS,
  "errors": (literals.ParseError,),
}
READERS: Mapping[str, Reader] = {
  "report of a program": Reader(r.read_report, ("executor/pool/verdict.py",)),
  "values of two runs": Reader(
    r.read_runs,
    ("executor/comparison.py", "executor/literals.py"),
    VALUES,
    comparison.MAX_INLINE_CHARS // 10,
  ),
  "output of a script": Reader(
    lambda text: scripts.read_result(Result("1", "ok", (text,), None, 0.1)),
    ("executor/scripts.py",),
    {**VALUES, "fields": PYTHON["fields"], "strings": PYTHON["strings"]},
    verdict.MAX_OUTPUT_CHARS,
  ),
  "result of a reward in the sandbox": Reader(
    lambda text: sandboxed.answer(Result("1", "ok", (text,), None, 0.1)),
    ("systems/custom/sandboxed.py",),
    {**VALUES, "fields": PYTHON["fields"], "strings": PYTHON["strings"]},
    verdict.MAX_OUTPUT_CHARS,
  ),
  "value": Reader(
    literals.typed_key,
    ("executor/literals.py", "executor/source_limits.py"),
    {**PYTHON, **VALUES},
    **_LIMIT,
  ),
  "source": Reader(
    lambda text: literals.guarded_parse(text, "exec"),
    ("executor/literals.py", "executor/source_limits.py"),
    {**COMMON, **PYTHON},
    **_LIMIT,
  ),
  "comment in a value": Reader(literals.has_comment, ("executor/literals.py",)),
  "arguments": Reader(
    lambda text: (are_literal_arguments(text), expressions.is_value(text)),
    ("grading/literals.py", "grading/expressions.py"),
    {**SYNTAX, **VALUES},
    source_limits.MAX_CHARS,
  ),
  "arguments as one text": Reader(
    arguments_text, ("grading/literals.py",), {**SYNTAX, **VALUES}, **_LIMIT
  ),
  "plain value": Reader(
    lambda text: values.plain_value(literals.typed_key(text)),
    ("grading/values.py",),
    VALUES,
    **_LIMIT,
  ),
  "answer tags": Reader(
    lambda text: (
      answer_tags.last_answer(text),
      answer_tags.answer_blocks(text),
    ),
    ("grading/answer_tags.py", "text/tags.py"),
  ),
  "Countdown, strict": Reader(
    lambda text: r.read_countdown(text, "strict"),
    ("grading/countdown.py",),
  ),
  "Countdown, published_code": Reader(
    lambda text: r.read_countdown(text, "published_code"),
    ("grading/countdown.py",),
  ),
  "Countdown, an answer": Reader(
    lambda text: r.read_countdown(text, "published_code"),
    ("grading/countdown.py",),
    frame=_ANSWER,
  ),
  "Countdown, a proposal": Reader(
    r.read_puzzles, ("tasks/countdown/prompts.py",), frame=("[1 ", "")
  ),
  "BIG-Bench Hard": Reader(r.read_bbh, ("grading/bbh.py",)),
  "gym": Reader(r.read_gym, ("grading/gym/",), max_chars=gym.MAX_ANSWER_CHARS),
  "SymBench": Reader(
    r.read_symbench,
    ("grading/symbench/",),
    max_chars=symbench.MAX_ANSWER_CHARS,
  ),
  "box": Reader(extraction.last_boxed, ("grading/mathematics/extraction.py",)),
  "mathematics": Reader(
    r.read_mathematics,
    ("grading/mathematics/",),
    {**COMMON, **MATHEMATICS},
    mathematics.MAX_ANSWER_CHARS,
  ),
  "mathematics, format": Reader(
    mathematics_prompts.well_formatted,
    ("tasks/mathematics/prompts.py",),
    frame=_ANSWER,
  ),
  "programs, format": Reader(
    parsing.well_formatted, ("tasks/programs/parsing.py",), frame=_ANSWER
  ),
  "programs, where a response stops": Reader(
    re.compile(parsing.ANSWER_BEGINS).search, ("rollout/response_end.py",)
  ),
  "programs, proposals": Reader(
    r.read_proposals, ("tasks/programs/parsing.py",), frame=_ANSWER
  ),
  "programs, a proposed program": Reader(
    r.read_proposals, ("tasks/programs/parsing.py",), frame=_PYTHON_FENCE
  ),
  "programs, fenced answers": Reader(
    lambda text: r.read_answers(text, parsing.FENCED),
    ("tasks/programs/parsing.py",),
    frame=_ANSWER,
  ),
  "programs, published code's answers": Reader(
    lambda text: r.read_answers(text, parsing.PUBLISHED_CODE),
    ("tasks/programs/parsing.py",),
    frame=_ANSWER,
  ),
  "grades of a guide": Reader(
    guide.read, ("systems/azr/extensions/guide.py",), frame=_ANSWER
  ),
  "answers to environments": Reader(
    environments.literal_answer,
    ("tasks/programs/environments.py",),
    {**SYNTAX, **VALUES},
    programs.MAX_ANSWER_CHARS,
  ),
  "programs, votes": Reader(
    r.read_votes,
    ("grading/votes.py",),
    {**SYNTAX, **VALUES},
    programs.MAX_ANSWER_CHARS,
  ),
  "programs, repetition": Reader(
    r.read_repetition, ("systems/azr/extensions/repetition.py",), PYTHON
  ),
  "programs, answers": Reader(
    r.read_solutions,
    ("grading/programs.py",),
    {**SYNTAX, **VALUES},
    programs.MAX_ANSWER_CHARS,
  ),
  "programs, reported values": Reader(
    r.read_reported,
    ("grading/programs.py", "grading/expressions.py"),
    VALUES,
    verdict.MAX_OUTPUT_CHARS,
  ),
  "unit tests, reported values": Reader(
    r.read_values,
    ("grading/unit_tests.py", "grading/harness.py", "evals/oracles.py"),
    VALUES,
    verdict.MAX_OUTPUT_CHARS,
  ),
  "program's key": Reader(
    program_key.program_key,
    ("tasks/programs/program_key.py",),
    SYNTAX,
    source_limits.MAX_CHARS,
  ),
  "proposed program": Reader(
    r.read_proposed,
    ("tasks/programs/validation.py",),
    SYNTAX,
    source_limits.MAX_CHARS,
  ),
  "rewritten program": Reader(
    lambda text: rewriting.strip(text, rewriting.STRIPPED),
    ("systems/azr/extensions/rewriting.py",),
    SYNTAX,
    source_limits.MAX_CHARS,
  ),
  "component": Reader(
    lambda text: composite.as_component(text, "g_0"),
    ("systems/azr/extensions/composite.py",),
    SYNTAX,
    source_limits.MAX_CHARS,
    ("def f(x): return 1\n", ""),
  ),
  "python block": Reader(
    lambda text: (
      code_blocks.find_tool_call(text),
      code_blocks.find_answer(text),
    ),
    ("tools/code_blocks.py",),
  ),
  "python block, while sampled": Reader(
    r.read_sampled, ("tools/block_finder.py",)
  ),
  "tool calls": Reader(
    tool_calls.find, ("tools/tool_calls.py",), {**COMMON, **CALLS}
  ),
  "conversation, format": Reader(
    r.read_formats,
    ("tools/code_blocks.py", "systems/code_interpreter/agents.py"),
  ),
  "script that checks": Reader(
    r.read_check,
    ("systems/code_interpreter/self_checks.py",),
    {**SYNTAX, **PYTHON},
    source_limits.MAX_CHARS,
  ),
  "script's complexity": Reader(
    script_complexity.measure,
    ("systems/code_interpreter/script_complexity.py",),
    SYNTAX,
    source_limits.MAX_CHARS,
  ),
  "benchmarks, answers": Reader(
    r.read_benchmark_answers, ("evals/answer_extraction.py", "text/fences.py")
  ),
  "benchmarks, choices": Reader(
    r.read_choices,
    ("evals/multiple_choice.py", "evals/answer_extraction.py"),
  ),
  "benchmarks, programs": Reader(
    r.read_benchmark_programs,
    ("evals/programming.py", "evals/livecodebench.py"),
  ),
  "first word": Reader(styles.first_word, ("evals/styles.py",)),
  "CRUXEval": Reader(
    r.read_cruxeval, ("evals/cruxeval.py",), frame=("assert f(", "")
  ),
  "text metrics": Reader(
    r.read_text_metrics, ("systems/text_metrics.py",), PIECES
  ),
  "flagged text": Reader(
    lambda text: text_monitor.find(text, text_monitor.rules()),
    ("run/text_monitor.py",),
    PIECES,
  ),
}
# Modules and folders that parse no model text here -> whose text they parse.
TRUSTED: Mapping[str, str] = {
  "api.py": "metrics that the trainer wrote",
  "run/profiling.py": "the user's flags",
  "cli/": "the user's flags and configs",
  "config/user_files.py": "the files of users",
  "corpora/": "what their own generators wrote, and the user's files",
  "data/": "the user's files",
  "environments/gym_kit.py": "a model's, in its own process",
  "tools/function_tool.py": "the docstrings of the user's tools",
  "environments/verifiers_kit.py": "requests of the environment's own client",
  "evals/livecodebench_files.py": "public data",
  "evals/registry.py": "the user's flags",
  "evals/record_files.py": "records that the runner wrote",
  "evals/table.py": "scores that the runner wrote",
  "evals/told.py": "the user's flags",
  "executor/__main__.py": "the user's jobs",
  "executor/child/independence.py": "a model's, in the process of its program",
  "executor/child/program.py": "a model's, in the process of its program",
  "functions/process.py": "replies that a worker process wrote, as JSON",
  "grading/__main__.py": "the user's cases",
  "serving/tinker/checkpoints.py": "names of clients, at most 128 characters",
  "serving/tinker/store.py": "what the server wrote",
  "run/starts.py": "the kernel's list of processors",
  "grading/assertions.py": "the tests of benchmarks and users",
  "grading/countdown_puzzle.py": "the user's puzzles",
  "grading/digests.py": "a model's, in the process of its program",
  "grading/outcome.py": "none",
  "grading/questions.py": "the references of questions",
  "grading/statements.py": "the tests of benchmarks and users",
  "models/": "the files of models",
  "parallel/hosts.py": "the coordinator's messages",
  "parallel/memory.py": "the compiler's errors",
  "parallel/messages.py": "what the other hosts wrote, as JSON",
  "lab/": "what the compiler and it wrote, the user's files and plans",
  "report/": "names of metrics",
  "rollout/settings.py": "the user's config",
  "run/checksums.py": "what it wrote",
  "run/json_lines.py": "what runs and scoring wrote",
  "run/records.py": "what it wrote",
  "run/folder.py": "configs that it wrote",
  "run/metrics.py": "metrics that it wrote",
  "systems/azr/program_metrics.py": "what its own programs report",
  "systems/code_interpreter/online_potential.py": "what it wrote",
  "systems/custom/examples.py": "a model's, in processes of the functions",
  "systems/chat_server.py": "the frame of a server's answer",
  "systems/custom/judge.py": "a judge's, in a process of the function",
  "systems/custom/rewards.py": "the user's config",
  "tasks/calls.py": "the user's configs",
  "tasks/chats.py": "the user's configs",
  "tasks/programs/measures.py": "a model's, in a process of the executor",
  "tasks/programs/seed_files.py": "the user's files",
  "tasks/questions/": "the files of public tasks",
  "tasks/records.py": "the user's files",
  "tasks/templates.py": "the user's files",
  "trainer/restore.py": "what the trainer wrote",
  "trainer/checkpoint_scores.py": "what it wrote",
  "trainer/scoring.py": "what it wrote",
}
