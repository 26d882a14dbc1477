"""A model's answers to questions, pass by pass, in files that can be begun.

What the measurement of improvement potential (`potential.py`) and the choice
of trajectories to learn from (`trajectories.py`) have in common.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import jax
import ml_collections

from azr_jax import evaluate
from azr_jax.evals import questions as benchmark_lib
from azr_jax.evals import runner
from azr_jax.evals.benchmark import Benchmark, Grade, Item
from azr_jax.executor import Executor
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.hosts import Hosts
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout import sampler as sampler_lib
from azr_jax.rollout import token_sampling
from azr_jax.run.metrics import say
from azr_jax.systems.code_interpreter import agents
from azr_jax.tasks.questions import prompts
from azr_jax.tasks.questions.question import Question
from azr_jax.trainer import build as parts


@dataclasses.dataclass(frozen=True)
class Pass:
  """One pass over all questions.

  Attributes:
    name: of its file.
    agent: one of `agents.AGENTS`, or `agents.CONVERSATION`.
    form: of the prompts, one of `prompts.FORMS`.
    temperature: of sampling.
    samples: answers to each question.
  """

  name: str
  agent: str
  form: str
  temperature: float
  samples: int


def answer(
  config: ml_collections.ConfigDict,
  model_spec: str,
  folder: pathlib.Path,
  questions: Sequence[Question],
  passes: Sequence[Pass],
  hosts: Hosts,
) -> Iterator[tuple[Pass, pathlib.Path, Tokenizer]]:
  """Yields each pass, when it is done, its file of records, and the tokenizer.

  Passes of one temperature should follow one another: another needs programs
  of its own.

  Args:
    config: with the sections of `configs/evaluate.py`.
    model_spec: a model spec or run folder.
    folder: where the files go; they are gone on with.
    questions: what to ask.
    passes: see there.
    hosts: of this run.

  Raises:
    ValueError: the folder has answers of something else.
  """
  asked = {
    "model": model_spec,
    "step": evaluate.step_of(model_spec),
    "config": evaluate.what_matters(config.to_dict()),
  }
  hosts.assert_equal("config", asked)
  if hosts.is_primary:
    evaluate.claim(folder, asked)
  hosts.barrier("the folder is there")
  mesh = mesh_lib.make_mesh(config.mesh)
  source, params = evaluate.load_model(config, model_spec, mesh)
  model = parts.build_model(config, source.config, mesh)
  items = [benchmark_lib.item(question) for question in questions]
  sampler = None
  with parts.build_executor(config) as executor:
    for number, one in enumerate(passes):
      choice = token_sampling.SamplingParams(
        one.temperature, config.rollout.top_k, config.rollout.top_p
      )
      if sampler is None or sampler.settings.choice != choice:
        sampler = sampler_lib.Sampler(
          model,
          source.tokenizer,
          parts.rollout_mesh(config, mesh),
          parts.sharding_rules(config),
          dataclasses.replace(parts.sampler_settings(config), choice=choice),
        )
      policy = policy_lib.Policy(
        sampler,
        source.tokenizer,
        sampler.compute_params(params),
        jax.random.fold_in(jax.random.key(config.seed), number),
      )
      path = folder / f"{one.name}.jsonl"
      style = config.evaluate.prompt_style
      runner.run(
        _benchmark(one, items),
        policy,
        executor,
        hosts,
        runner.RunSettings("", 0, style, one.samples),
        path,
        parts.build_agent(config, one.agent, source.tokenizer, executor, hosts),
      )
      hosts.barrier(f"{one.name} is written")
      if hosts.is_primary:
        say(f"{one.name} is done ({number + 1} of {len(passes)})")
      yield one, path, source.tokenizer


def _benchmark(one: Pass, items: list[Item]) -> Benchmark:
  """What to ask in a pass, and how to grade it."""

  def grade(executor: Executor, item: Item, text: str) -> "Future[Grade]":
    if one.agent == agents.CONVERSATION:
      text = agents.read_conversation(text)[-1]
    return benchmark_lib.grade(executor, item, text)

  return Benchmark(
    one.name,
    "",
    lambda data: items,
    "words",
    grade,
    prompt=lambda item, style, tokenizer: prompts.ask(
      item.request, one.form, style, tokenizer
    ),
    reads_by_name=True,
    by_kind=True,
  )
