"""Builds systems and corpora from a config."""

import logging
import pathlib
from typing import Any

import ml_collections
import numpy as np

from azr_jax.corpora import arithmetic as mathematics_corpus
from azr_jax.corpora import corpus as corpus_lib
from azr_jax.corpora import countdown as countdown_corpus
from azr_jax.corpora import demonstrations
from azr_jax.corpora import questions as question_corpus
from azr_jax.corpora.corpus import Corpus
from azr_jax.corpora.programs import conversations, dataset, tokenizer
from azr_jax.curricula import adaptive, mixed, mixture, replay
from azr_jax.curricula.curriculum import Buckets, Curriculum
from azr_jax.curricula.stages import Stages
from azr_jax.executor import Executor, libraries
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.grading.mathematics import grader
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.verification import Verification
from azr_jax.rollout.environment import Outcomes
from azr_jax.rollout.policy import Ask
from azr_jax.rollout.python_tool import PythonTool, PythonToolSettings
from azr_jax.systems.azr import rewards as azr_rewards
from azr_jax.systems.azr import system as azr
from azr_jax.systems.code_interpreter import agents
from azr_jax.systems.code_interpreter import rewards as code_interpreter_rewards
from azr_jax.systems.code_interpreter import system as code_interpreter
from azr_jax.systems.countdown import system as countdown
from azr_jax.systems.orz import system as orz
from azr_jax.systems.system import System
from azr_jax.tasks.countdown import dataset as dataset_lib
from azr_jax.tasks.countdown import difficulty, generator
from azr_jax.tasks.mathematics import sources as sources_lib
from azr_jax.tasks.questions import measured
from azr_jax.tasks.questions import sources as questions_lib
from azr_jax.trainer import build as parts


def build_system(
  config: ml_collections.ConfigDict,
  verification: Verification,
  executor: Executor,
  hosts: Hosts,
) -> System:
  """Builds the system that `config.system` names.

  Args:
    config: the experiment.
    verification: grades answers.
    executor: runs the code of conversations.
    hosts: of this run.
  """
  if config.system == "countdown":
    return _build_countdown(config)
  if config.system == "orz":
    return _build_orz(config, verification)
  if config.system == "code_interpreter":
    return _build_code_interpreter(config, verification, executor, hosts)
  c = config.azr
  rewards = azr_rewards.RewardRules(
    unlearnable=azr_rewards.UNLEARNABLE_REWARDS[c.unlearnable_reward],
    wrong=c.wrong_reward,
    bad_format=c.bad_format_reward,
    intrinsic=tuple(zip(c.intrinsic, c.intrinsic_weights, strict=True)),
    aggregation=c.aggregation,
  )
  settings = azr.AZRSettings(
    task_types=tuple(c.task_types),
    batch_size=c.batch_size,
    references=c.references,
    reference_draw=c.reference_draw,
    composite_chance=c.composite_chance,
    composite_most=c.composite_most,
    strip=tuple(c.strip),
    roles=tuple(c.roles),
    learnability_samples=c.learnability_samples,
    induction_inputs=c.induction_inputs,
    seed_factor=c.seed_factor,
    seed_rounds=c.seed_rounds,
    seeds=c.seeds,
    max_programs=c.max_programs,
    evict=c.evict,
    revisit=c.revisit,
    duplicates=c.duplicates,
    prompt_style=c.prompt_style,
    solve_from=c.solve_from,
    train_on_learnability=c.train_on_learnability,
    measure_programs=c.measure_programs,
    rewards=rewards,
    seed=config.seed,
  )
  return azr.AZR(settings, verification)


def _build_countdown(config: ml_collections.ConfigDict) -> countdown.Countdown:
  c = config.countdown
  puzzles, scores = _puzzles(config)
  names = difficulty.BUCKETS + ((countdown.OWN,) if c.proposals else ())
  limits = difficulty.thresholds(scores)
  pool = Buckets(names, difficulty.buckets(scores, limits).tolist())
  drawn: Curriculum
  if c.curriculum == "adaptive":
    settings = adaptive.AdaptiveSettings(**c.adaptive.to_dict())
    drawn = adaptive.Adaptive(pool, settings)
  elif c.curriculum == "static":
    drawn = mixture.Mixture(pool, mixture.static(config.train.steps))
  else:
    drawn = mixture.Mixture(pool, mixture.proportional(pool))
  if c.replay.share:
    drawn = replay.Replay(drawn, replay.ReplaySettings(**c.replay.to_dict()))
  sources = [puzzles]
  if c.mix.puzzles:
    made, made_scores = _training_puzzles(c.mix.puzzles)
    made_limits = difficulty.thresholds(made_scores)
    made_pool = Buckets(
      difficulty.BUCKETS, difficulty.buckets(made_scores, made_limits).tolist()
    )
    shares = mixture.proportional(made_pool)
    if c.mix.bucket_shares:
      shares = mixture.constant(c.mix.bucket_shares)
    sources.append(made)
    drawn = mixed.Mixed(drawn, mixture.Mixture(made_pool, shares), c.mix.share)
  return countdown.Countdown(
    countdown.CountdownSettings(
      prompts=c.prompts,
      group_size=c.group_size,
      prompt_style=c.prompt_style,
      verifier=c.verifier,
      proposals=c.proposals,
      references=c.references,
      rewards=azr_rewards.RewardRules(
        c.unlearnable_reward, 0.0, c.bad_proposal_reward
      ),
      seed=config.seed,
    ),
    sources,
    drawn,
    pool,
  )


def _build_orz(
  config: ml_collections.ConfigDict, verification: Verification
) -> orz.ORZ:
  c = config.orz
  if c.grader == grader.LIBRARY:
    libraries.check((grader.LIBRARY,))
  problems = sources_lib.read_all(c.data, c.counts, c.data_seed)
  settings = orz.ORZSettings(
    prompts=c.prompts,
    samples=c.samples,
    prompt_style=c.prompt_style,
    grader=c.grader,
    length_stopped=c.length_stopped,
    health_samples=c.health_samples,
    seed=config.seed,
  )
  return orz.ORZ(settings, problems, verification)


def _build_code_interpreter(
  config: ml_collections.ConfigDict,
  verification: Verification,
  executor: Executor,
  hosts: Hosts,
) -> code_interpreter.CodeInterpreter:
  c = config.code_interpreter
  questions = questions_lib.read_all(c.questions, c.count, c.data_seed)
  found = None
  if c.measured:
    found = measured.of_all(pathlib.Path(c.measured).expanduser(), questions)
  settings = PythonToolSettings(
    c.max_calls, c.result_tokens, config.executor.timeout_s, c.libraries
  )

  def make_interpreter(tokenizer: Tokenizer) -> PythonTool:
    return PythonTool(settings, tokenizer, executor, hosts)

  def make_agents(tokenizer: Tokenizer) -> dict[str, Ask]:
    interpreter = make_interpreter(tokenizer)
    outcomes = Outcomes(executor, hosts)
    return {
      agent: agents.make(agent, interpreter, outcomes, c.prompt_style)
      for agent in c.measure_agents
    }

  return code_interpreter.CodeInterpreter(
    code_interpreter.CodeInterpreterSettings(
      prompts=c.prompts,
      samples=c.samples,
      prompt_style=c.prompt_style,
      measure_samples=c.measure_samples,
      rewards=code_interpreter_rewards.RewardRules(
        c.form_reward, c.turns_penalty, c.most_turns
      ),
    ),
    questions,
    Stages(
      [question.id for question in questions],
      found,
      order=c.order,
      grouping=c.grouping,
      stage_steps=c.stage_steps,
      seed=config.seed,
    ),
    verification,
    make_interpreter,
    make_agents,
  )


def _training_puzzles(path: str) -> tuple[list[Puzzle], np.ndarray]:
  """A file's puzzles, without those of the class that we test on.

  Raises:
    ValueError: none are left.
  """
  puzzles, scores = dataset_lib.read(pathlib.Path(path).expanduser())
  kept = [i for i, p in enumerate(puzzles) if not generator.is_test(p)]
  logging.warning(
    "%s: %d of %d puzzles are of the test split and left out",
    path,
    len(puzzles) - len(kept),
    len(puzzles),
  )
  if not kept:
    raise ValueError(f"{path}: expected puzzles outside of the test split")
  return [puzzles[i] for i in kept], scores[kept]


def _puzzles(config: ml_collections.ConfigDict) -> tuple[list[Puzzle], Any]:
  """The labelled puzzles to train on: a file's, or generated ones."""
  c = config.countdown
  if c.puzzles:
    return _training_puzzles(c.puzzles)
  return dataset_lib.load(
    seed=c.data_seed,
    train=c.count,
    test=0,
    data_dir=pathlib.Path(c.data_dir).expanduser(),
    split="train",
  )


def build_corpus(
  config: ml_collections.ConfigDict, folder: pathlib.Path
) -> Corpus:
  """Builds, or finds in a folder, the corpus that `data.kind` names."""
  if config.data.kind == "countdown":
    c = config.worked.to_dict()
    settings = countdown_corpus.CorpusSettings(**c)
    return Corpus(
      corpus_lib.of_pairs(list(countdown_corpus.conversations(settings))),
      countdown_corpus.train_tokenizer,
    )
  if config.data.kind == "sums":
    sums = mathematics_corpus.CorpusSettings(**config.sums.to_dict())
    return Corpus(
      corpus_lib.of_pairs(list(mathematics_corpus.conversations(sums))),
      mathematics_corpus.train_tokenizer,
    )
  if config.data.kind == "questions":
    tasks = question_corpus.CorpusSettings(**config.tasks.to_dict())
    return Corpus(
      list(question_corpus.conversations(tasks)),
      question_corpus.train_tokenizer,
    )
  if config.data.kind == "trajectories":
    path = pathlib.Path(config.learned.path).expanduser()
    return Corpus(
      [one.conversation() for one in demonstrations.read(path)],
      question_corpus.train_tokenizer,
    )
  with parts.build_executor(config) as executor:
    pairs = dataset.load(
      seed=config.corpus.seed,
      count=config.corpus.count,
      settings=_program_corpus(config),
      executor=executor,
      data_dir=folder,
    )
  return Corpus(corpus_lib.of_pairs(pairs), tokenizer.train_tokenizer)


def _program_corpus(
  config: ml_collections.ConfigDict,
) -> conversations.CorpusSettings:
  c = config.corpus
  return conversations.CorpusSettings(
    worked_share=c.worked_share,
    table_share=c.table_share,
    flaw_share=c.flaw_share,
    vague_share=c.vague_share,
    num_inputs=c.num_inputs,
    references=c.references,
  )
