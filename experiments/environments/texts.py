"""Writes the data of the experiment: training texts, seed tasks and benchmarks.

  python -m experiments.environments.texts --out=DIR
  python -m experiments.environments.texts --held_out=experiments/environments

| file of `--out` | content |
| --- | --- |
| `conversations.jsonl` | supervised data: proposals and solutions of both kinds
  of tasks; every solution shows its steps |
| `seeds.jsonl` | what self-play starts from, equally many tasks of each kind |

| file of `--held_out` | content |
| --- | --- |
| `held_out.jsonl` | tasks to score; no file of `--out` has their programs |
| `deep.jsonl` | the same with four operations; others have at most three |

All use procedural programs of `azr_jax.corpora.programs` with one parameter.
Each program becomes two tasks with the same kind of arguments. The program task
shows the code and an argument. The environment draws an argument, and its
message says the operations in words.
"""

import argparse
import dataclasses
import json
import pathlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from azr_jax.corpora.programs import conversations, generator, heldout
from azr_jax.corpora.programs.generator import ProceduralProgram
from azr_jax.tasks.programs import (
  environment_prompts,
  program_key,
  prompts,
  seed_files,
)
from azr_jax.tasks.programs.task import (
  DEDUCTION,
  ZERO_TRIPLET,
  EnvironmentTask,
  Instance,
  Triplet,
)

SEED = 58
_CONVERSATIONS = 12_000
_SEEDS = 64
_PER_KIND = 300
# Instances drawn to see that an environment's answers vary.
_TRIED = 24
_MAX_INT = 99
_DEEP = (0.0, 0.0, 0.0, 1.0)

# Type of the argument -> the expression that `generate` returns, and its value.
_ARGUMENTS: dict[str, tuple[str, Callable[[random.Random], Any]]] = {
  "int": ("rng.randrange(30)", lambda rng: rng.randrange(30)),
  "list": (
    "[rng.randrange(10) for i in range(3)]",
    lambda rng: [rng.randrange(10) for _ in range(3)],
  ),
  "str": (
    "''.join(rng.choice('abcde') for i in range(4))",
    lambda rng: "".join(rng.choice("abcde") for _ in range(4)),
  ),
}


@dataclasses.dataclass(frozen=True)
class Drawn:
  """A program as a program task and as an environment.

  Attributes:
    program: the program.
    triplet: the program task.
    steps: the values after each operation on its input.
    instance: an instance of the environment.
    instance_steps: the values after each operation on it.
  """

  program: ProceduralProgram
  triplet: Triplet
  steps: list
  instance: Instance
  instance_steps: list

  @property
  def plan(self) -> str:
    """The operations in words."""
    return ", then ".join(self.program.phrases())


def draw(
  rng: np.random.Generator, *, is_heldout: bool = False, is_deep: bool = False
) -> Drawn:
  """Draws a program whose environment the sandbox is likely to admit."""
  lengths = _DEEP if is_deep else generator.CHAIN_LENGTH_PROBABILITIES
  while True:
    program = generator.generate_program(rng, lengths)
    if (
      program.opening.line
      or is_deep != (len(program.chain) == len(_DEEP))
      or is_heldout != heldout.is_heldout(program.code)
    ):
      continue
    expression, sample = _ARGUMENTS[program.opening.output_type]
    first = int(rng.integers(1 << 30))
    values = [sample(random.Random(first + i)) for i in range(_TRIED)]
    traces = [program.trace((value,), _MAX_INT) for value in values]
    answers = [trace[-1] for trace in traces if trace is not None]
    most = max(Counter(map(repr, answers)).values(), default=0)
    if len(answers) < _TRIED or 3 * most > _TRIED:
      continue
    first_steps, second_steps = (trace for trace in traces[:2] if trace)
    return Drawn(
      program,
      Triplet(program.code, repr(values[0]), repr(answers[0])),
      first_steps,
      Instance(
        _environment(program, expression), repr(values[1]), repr(answers[1])
      ),
      second_steps,
    )


def _environment(
  program: ProceduralProgram, expression: str
) -> EnvironmentTask:
  """Returns a program as an environment; `generate` returns `expression`."""
  name = program.variable
  helper, _, function = program.code.rpartition("def f(")
  code = (
    "import random\n"
    f"def generate(seed):\n  rng = random.Random(seed)\n  return {expression}\n"
    f"{helper}def solve({function}\n"
    f"def score({name}, answer):\n  return answer == solve({name})"
  )
  return EnvironmentTask(code, ", then ".join(program.phrases()), "")


def solve_program(rng: np.random.Generator) -> tuple[str, str]:
  """Returns a prompt and response that work out a program's output."""
  drawn = draw(rng)
  triplet = drawn.triplet
  return (
    prompts.solve_deduction_prompt(
      triplet.code, triplet.input, prompts.COMPACT
    ),
    _solution(drawn.program, drawn.steps),
  )


def solve_instance(rng: np.random.Generator) -> tuple[str, str]:
  """Returns a prompt and response that solve an environment's instance."""
  drawn = draw(rng)
  return (
    environment_prompts.solve(drawn.instance, prompts.COMPACT),
    _solution(drawn.program, drawn.instance_steps),
  )


def _solution(program: ProceduralProgram, steps: list) -> str:
  answer = prompts.fence("output", repr(steps[-1]))
  return prompts.response(conversations.write_trace(program, steps), answer)


def propose_program(rng: np.random.Generator) -> tuple[str, str]:
  """Returns a prompt for a new program task, and a response to it."""
  drawn = draw(rng)
  references = [draw(rng).triplet] if rng.random() < 0.9 else [ZERO_TRIPLET]
  answer = "\n".join(
    [
      prompts.fence("python", drawn.triplet.code),
      prompts.fence("input", drawn.triplet.input),
    ]
  )
  return (
    prompts.propose_triplet_prompt(DEDUCTION, references, prompts.COMPACT),
    prompts.response(drawn.plan, answer),
  )


def propose_environment(rng: np.random.Generator) -> tuple[str, str]:
  """Returns a prompt for a new environment, and a response to it."""
  drawn = draw(rng)
  references = [draw(rng).instance.environment]
  answer = environment_prompts.show([drawn.instance.environment])
  return (
    environment_prompts.propose(references, prompts.COMPACT),
    prompts.response(drawn.plan, answer),
  )


def scored(rng: np.random.Generator, is_deep: bool) -> Iterator[dict[str, Any]]:
  """Yields distinct programs as a program task and as an instance.

  Programs with a helper are left out: the corpus may have a twin that differs
  in a variable's name only (`corpora/programs/heldout.py`).
  """
  seen: set[str] = set()
  while len(seen) < _PER_KIND:
    drawn = draw(rng, is_heldout=True, is_deep=is_deep)
    key = program_key.program_key(drawn.program.code)
    if key in seen or any(one.helper for one in drawn.program.chain):
      continue
    seen.add(key)
    for task_type, task in (
      ("deduction", drawn.triplet),
      ("environment", drawn.instance),
    ):
      yield {"task_type": task_type, "task": dataclasses.asdict(task)}


def _write(path: pathlib.Path, rows: Iterable[dict[str, Any]]) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  text = "".join(json.dumps(row) + "\n" for row in rows)
  path.write_text(text, "utf-8")


def main() -> None:
  """Reads the flags and writes the files."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--out", type=pathlib.Path)
  parser.add_argument("--held_out", type=pathlib.Path)
  parser.add_argument(
    "--count", type=int, default=_CONVERSATIONS, help="conversations"
  )
  flags = parser.parse_args()
  if flags.held_out:
    rng = np.random.default_rng(SEED)
    _write(flags.held_out / "held_out.jsonl", scored(rng, is_deep=False))
    _write(flags.held_out / "deep.jsonl", scored(rng, is_deep=True))
  if flags.out:
    rng = np.random.default_rng(SEED + 1)
    kinds = (
      *(solve_program, solve_instance) * 2,
      *(propose_program, propose_environment),
    )
    texts = (kinds[i % len(kinds)](rng) for i in range(flags.count))
    _write(
      flags.out / "conversations.jsonl",
      ({"prompt": prompt, "completion": text} for prompt, text in texts),
    )
    seeds = [draw(rng) for _ in range(_SEEDS)]
    _write(
      flags.out / "seeds.jsonl",
      [
        *(seed_files.to_json(seed_files.TRIPLETS, s.triplet) for s in seeds),
        *(
          seed_files.to_json(seed_files.ENVIRONMENTS, s.instance.environment)
          for s in seeds
        ),
      ],
    )


if __name__ == "__main__":
  main()
