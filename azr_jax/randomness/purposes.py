"""The purposes of random numbers; each has streams of its own.

Runs repeat their draws by these values, so a value never changes its meaning.
"""

import enum


@enum.unique
class Purpose(enum.IntEnum):
  """What random numbers decide, with the numbers that tell its draws apart."""

  # Keys of the device, from the seed (`keys.of`).
  SAMPLING = 1  # rollouts: step
  EVALUATION = 2  # samples that no step trains on: none
  SELECTION = 3  # tokens that a policy loss selects: step
  VALUE_HEAD = 4  # the critic's value head before training: none
  INIT = 5  # untrained parameters: none

  # Keys of the device, from a policy's key (`keys.fold`). The policy folds the
  # numbers of its calls, below 2^31, into the same key.
  BRANCH = 1 << 31  # a policy's branch: the caller's numbers
  PASS_RATES = (1 << 31) + 1  # measured pass rates: pass

  # Streams of the host (`streams.generator`): curricula and systems.
  CURRICULUM = 101  # items that a curriculum draws: step, attempt
  EPOCHS = 102  # order of an epoch's items: stage, epoch
  TIES = 103  # order of items with equal pass rates: none
  SHUFFLED_PASS_RATES = 104  # the control of a curriculum: none
  REFERENCES = 105  # tasks in proposers' prompts: step
  REVISITED = 106  # buffered tasks to solve again: step
  GATE = 107  # unverified proposals to admit: step, proposal
  SEED_FILE = 108  # order of a file's seed tasks: none
  SEED_REFERENCES = 109  # tasks in seeding prompts: kind, round
  # Any draw of a system outside this library: the system's numbers.
  SYSTEM = 110

  # Streams of the host: data, packing and statistics.
  PACKING = 201  # order of a step's packed rows: step
  HELD_OUT_ROWS = 202  # rows to evaluate on: none
  CONVERSATIONS = 203  # order of a corpus: none
  CORPUS_ROWS = 204  # order of a corpus's packed rows: none
  ARITHMETIC_CORPUS = 205  # none
  COUNTDOWN_CORPUS = 206  # none
  PROGRAM_CORPUS = 207  # none
  QUESTION_CORPUS = 208  # none
  DEMONSTRATIONS = 209  # conversations to fine-tune on: none
  RESAMPLES = 210  # bootstrap of a comparison: none
