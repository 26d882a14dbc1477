"""The purposes of random numbers. Each has streams or keys of its own.

A comment says what a purpose draws, and after the colon the numbers that it
takes besides the seed. Resumed runs and users repeat draws by these values, so
a value never changes its meaning.
"""

import enum


@enum.unique
class Purpose(enum.IntEnum):
  """What random numbers are drawn for."""

  # Keys of the device, derived from the seed by `keys.of`.
  SAMPLING = 1  # rollouts: step
  EVALUATION = 2  # samples that no step trains on
  SELECTION = 3  # tokens that a policy loss selects: updates so far
  VALUE_HEAD = 4  # the critic's value head before training
  INIT = 5  # untrained parameters
  INTERACTIVE = 6  # samples of a notebook: 0 and call, or 1 and the seed
  ADAPTERS = 7  # untrained adapters
  # Stochastic rounding: network, part of its state, updates so far, array.
  ROUNDING = 8

  # Keys of the device, derived from a policy's key by `keys.fold`. The policy
  # derives its calls' keys from their numbers, which are below 2^31.
  BRANCH = 1 << 31  # a branch of a policy: the caller's numbers
  PASS_RATES = (1 << 31) + 1  # measured pass rates: pass
  BENCHMARK = (1 << 31) + 2  # answers to a benchmark: digest of its name

  # Generators of the host, from `streams.generator`, for curricula and systems.
  CURRICULUM = 101  # items from buckets or a bandit: step, attempt
  EPOCHS = 102  # order of an epoch's items: stage, epoch
  TIES = 103  # order of items with equal pass rates
  SHUFFLED_PASS_RATES = 104  # the control of an offline curriculum
  REFERENCES = 105  # examples in proposers' prompts: step
  REVISITED = 106  # buffered tasks to solve again: step
  GATE = 107  # whether to admit an unverified proposal: step, proposal
  SEED_FILE = 108  # order of a file's seed tasks
  SEED_REFERENCES = 109  # examples in prompts for seeds: kind, round
  SYSTEM = 110  # draws of a system outside this library: its own numbers
  EQUAL_GROUPS = 111  # questions of groups of equal size: group
  TASKS = 112  # tasks to train on
  INSTANCES = 113  # instances of buffered environments: step, episode
  RANDOM_LABELS = 114  # outcomes of solutions with random labels: step

  # Generators of the host for data, packing and statistics.
  PACKING = 201  # order of packed rows: step
  HELD_OUT_ROWS = 202  # rows to evaluate on
  CONVERSATIONS = 203  # order of a corpus
  CORPUS_ROWS = 204  # order of a corpus's packed rows
  ARITHMETIC_CORPUS = 205  # styles of solutions
  COUNTDOWN_CORPUS = 206  # styles of solutions and references
  PROGRAM_CORPUS = 207  # programs and prompts
  QUESTION_CORPUS = 208  # styles of answers
  DEMONSTRATIONS = 209  # conversations to fine-tune on
  RANDOM_PUZZLES = 210  # uniformly drawn Countdown puzzles
  PROPOSALS = 211  # order of proposed puzzles
  RESAMPLES = 212  # bootstrap of a comparison
  CORPUS_EPOCHS = 213  # order of later epochs of a corpus: epoch
