"""Supervised training: base models for tiny runs, warm starts for larger ones.

  python -m azr_jax.sft --config=configs/sft.py:azr_tiny --workdir=/tmp/sft

| variant | what it makes |
| --- | --- |
| `azr_tiny` | the embedded base model of `configs/azr.py:tiny` |
| `countdown_tiny` | the start of `configs/countdown.py:tiny` |
| `countdown_qwen2.5-0.5b` | the start of `configs/countdown.py:qwen2.5-0.5b` |
| `orz_tiny` | the embedded base model of `configs/orz.py:tiny` |
| `code_tiny` | the start of `configs/code_interpreter.py:tiny` |
| `code_tiny_own` | the same model after conversations of its own |
| `code_qwen2.5-3b`, `-7b`, `-14b` | the starts of their namesakes there |
| `smoke`, `countdown_smoke` | nothing of use, in seconds |

The README has the recipes' costs and scores.
"""

import ml_collections

from configs import code_interpreter, common

VARIANTS = (
  "azr_tiny",
  "smoke",
  "countdown_tiny",
  "countdown_smoke",
  "countdown_qwen2.5-0.5b",
  "orz_tiny",
  "code_tiny",
  "code_tiny_own",
  *(f"code_qwen2.5-{size}" for size in code_interpreter.SIZES),
)
_QWEN_CODE = {
  "3b": "hf:Qwen/Qwen2.5-3B-Instruct",
  "7b": "hf:Qwen/Qwen2.5-7B-Instruct-1M",
  "14b": "hf:Qwen/Qwen2.5-14B-Instruct-1M",
}


def get_config(variant: str = "azr_tiny") -> ml_collections.ConfigDict:
  """Returns the supervised configuration of a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  c = common.get_config()
  del c.system, c.rollout, c.critic, c.evaluation
  c.learner = ml_collections.ConfigDict()
  c.learner.row_length = 192  # tokens per packed row
  c.learner.micro_rows = 12  # rows per optimizer step
  c.learner.max_micro_batches = 1
  c.learner.chunk_tokens = 2304
  c.learner.aggregation = "token_mean"
  c.hosts.timeout_s = 3600.0  # the first builds the corpus for all
  c.train.model_dtype = "float16"  # of the model's files at the end
  c.data = ml_collections.ConfigDict()
  # programs | countdown | sums | questions | trajectories
  c.data.kind = "programs"  # what conversations are about
  c.data.tokenizer_samples = 6000  # conversations a new tokenizer sees
  _from_scratch(c, steps=10_000)
  if variant.startswith("countdown"):
    _countdown(c)
  elif variant == "orz_tiny":
    _sums(c)
  elif variant == "code_tiny":
    _questions(c)
  elif variant.startswith("code"):
    _trajectories(c, variant)
  else:
    _programs(c)
  if variant == "countdown_qwen2.5-0.5b":
    _qwen(c)
  if variant.endswith("smoke"):
    c.data.tokenizer_samples = 600
    c.optimizer.warmup_steps = 1
    c.optimizer.decay_steps = 4
    c.train.steps = 4
    c.train.save_every = 2
  if variant == "smoke":
    c.corpus.count = 600
  if variant == "countdown_smoke":
    c.worked.count = 600
  return c


def _from_scratch(c: ml_collections.ConfigDict, steps: int) -> None:
  c.optimizer.learning_rate = 3e-3
  c.optimizer.muon_learning_rate = 0.02
  c.optimizer.b2 = 0.98
  c.optimizer.warmup_steps = 100
  c.optimizer.decay_steps = steps
  c.optimizer.final_learning_rate = 1e-4
  c.optimizer.weight_decay = 0.01
  c.train.steps = steps
  c.train.save_every = 1000


def _programs(c: ml_collections.ConfigDict) -> None:
  c.model.source = "preset:azr-tiny"  # random weights, own tokenizer
  c.corpus = ml_collections.ConfigDict()
  c.corpus.seed = 0
  c.corpus.count = 240_000  # conversations
  c.corpus.worked_share = 0.42  # solutions that reason step by step
  c.corpus.table_share = 0.7  # longer direct induction answers that are tables
  c.corpus.flaw_share = 0.25  # proposals with a mistake
  c.corpus.vague_share = 0.3  # induction messages that leave a step out
  c.corpus.num_inputs = 4  # cases of an induction task
  c.corpus.references = 2  # most references in a proposer's prompt


def _countdown(c: ml_collections.ConfigDict) -> None:
  c.data.kind = "countdown"
  c.model.source = "preset:countdown-tiny"
  c.worked = ml_collections.ConfigDict()
  c.worked.seed = 0
  c.worked.count = 120_000  # conversations
  c.worked.prompt_style = "compact"  # full | compact
  # Weights of direct, search, backward and guess.
  c.worked.style_shares = (0.35, 0.15, 0.1, 0.4)
  c.worked.try_share = 0.25  # of a wrong try before a right step or guess
  c.worked.propose_share = 0.12  # conversations that propose a puzzle
  c.worked.references = 2  # puzzles a proposer is shown
  _from_scratch(c, steps=6000)


def _sums(c: ml_collections.ConfigDict) -> None:
  c.data.kind = "sums"
  c.model.source = "preset:orz-tiny"
  c.sums = ml_collections.ConfigDict()
  c.sums.seed = 0
  c.sums.count = 60_000  # conversations
  c.sums.data = "gym:chain_sum(min_terms=3, max_terms=4, max_digits=2)"
  c.sums.manner_shares = (0.3, 0.4, 0.3)  # of worked, guessed and bare
  c.learner.row_length = 176
  _from_scratch(c, steps=2000)


def _questions(c: ml_collections.ConfigDict) -> None:
  c.data.kind = "questions"
  c.model.source = "preset:code-tiny"
  c.tasks = ml_collections.ConfigDict()
  c.tasks.seed = 0
  c.tasks.count = 8_000  # conversations about each of the tasks
  c.tasks.tasks = code_interpreter.TINY_QUESTIONS
  c.tasks.manner_shares = (0.6, 0.3, 0.1)  # of text, code and check
  c.tasks.free_share = 0.6  # of prompts that leave the manner open
  c.learner.row_length = 192
  _from_scratch(c, steps=1500)


def _trajectories(c: ml_collections.ConfigDict, variant: str) -> None:
  """R1-CI, section 4.1; what it does not name is CodeSteer's."""
  c.data.kind = "trajectories"
  c.data.tokenizer_samples = 1
  c.learned = ml_collections.ConfigDict()
  c.learned.path = "/tmp/trajectories/trajectories.jsonl"
  c.optimizer.muon_learning_rate = 0.0
  c.optimizer.weight_decay = 0.0
  c.optimizer.final_learning_rate = 0.0
  if variant == "code_tiny_own":
    c.model.source = "embedded:code-tiny"
    c.optimizer.learning_rate = 1e-4
    c.optimizer.warmup_steps = 4
    c.optimizer.decay_steps = 40
    c.train.steps = 40
    c.train.save_every = 20
    return
  c.model.source = _QWEN_CODE[variant.removeprefix("code_qwen2.5-")]
  c.model.dtype = "bfloat16"
  c.model.remat = "full"
  c.train.model_dtype = "bfloat16"
  c.learner.row_length = 7168  # CodeSteer cuts at 7,024 tokens
  # About 32 conversations a step (paper: 32), four to a row.
  c.learner.micro_rows = 8
  c.optimizer.learning_rate = 1e-5
  c.optimizer.b2 = 0.999
  # Paper: 3 epochs of 6,500 conversations.
  c.optimizer.warmup_steps = 60
  c.optimizer.decay_steps = 610
  c.train.steps = 610
  c.train.save_every = 100


def _qwen(c: ml_collections.ConfigDict) -> None:
  """Constants of the course's public code, where Countdown names none."""
  c.model.source = "hf:Qwen/Qwen2.5-0.5B"
  c.model.dtype = "bfloat16"
  c.model.remat = "dots"
  c.data.tokenizer_samples = 1
  c.worked.count = 20_000
  c.worked.prompt_style = "full"
  c.worked.style_shares = (0.2, 0.5, 0.2, 0.1)
  c.learner.row_length = 1536
  c.learner.micro_rows = 64
  c.optimizer.learning_rate = 5e-5
  c.optimizer.muon_learning_rate = 0.0
  c.optimizer.b2 = 0.999
  c.optimizer.warmup_steps = 20
  c.optimizer.decay_steps = 400
  c.optimizer.final_learning_rate = 0.0
  c.train.steps = 400
  c.train.save_every = 100
  c.train.model_dtype = "bfloat16"
