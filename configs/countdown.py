"""RLOO on Countdown, and how its prompts are chosen (docs/papers.md).

  python -m azr_jax.train --config=configs/countdown.py:tiny \\
      --workdir=/tmp/countdown

`tiny` starts from what `python -m azr_jax.sft
--config=configs/sft.py:countdown_tiny` made. The larger model starts from the
folder `model` of `countdown_qwen2.5-0.5b`, as `--config.model.source` names it.

| variant | prompts |
| --- | --- |
| `tiny` | uniform |
| `tiny_static` | from easy to hard by schedule (table 1) |
| `tiny_adaptive` | one bucket a step, near the target success (eq. 2-4) |
| `tiny_replay` | the same, and solved in part before (eq. 5) |
| `tiny_random_mix` | half from a pool of random puzzles |
| `tiny_lm_mix` | half from a pool that the warm-started model proposed |
| `tiny_closed_loop` | adaptive, with puzzles the policy proposes as it learns |

`qwen2.5-0.5b` and its variants have the paper's constants of section 4.1;
`qwen2.5-0.5b_mix` and `qwen2.5-0.5b_lm_mix` those of section 4.2.
"""

import ml_collections

from configs import common

KINDS = (
  "",
  "_static",
  "_adaptive",
  "_replay",
  "_conservative_replay",
  "_random_mix",
  "_lm_mix",
  "_curriculum_mix",
  "_closed_loop",
)
MODELS = ("tiny", "qwen2.5-0.5b")
VARIANTS = tuple(model + kind for model in MODELS for kind in KINDS)


def get_config(variant: str = "tiny") -> ml_collections.ConfigDict:
  """Returns the experiment's configuration for a variant of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(f"variant {variant!r}: expected one of {VARIANTS}")
  model = next(m for m in MODELS if variant.startswith(m))
  kind = variant.removeprefix(model)
  c = common.get_config()
  c.system = "countdown"
  _paper(c)
  if model == "tiny":
    _tiny(c)
  elif kind.endswith("mix"):
    _paper_mixing(c)
  _choose_prompts(c, kind)
  return c


def _paper(c: ml_collections.ConfigDict) -> None:
  """Section 4.1, and the course project's constants where it is silent."""
  c.countdown = ml_collections.ConfigDict()
  c.countdown.prompts = 128  # puzzles of an update
  c.countdown.group_size = 8  # G, answers to each
  c.countdown.prompt_style = "full"  # full | compact
  c.countdown.verifier = "strict"  # strict | compat
  c.countdown.puzzles = ""  # a file in the public layout; "": generated ones
  c.countdown.data_dir = "~/.cache/azr_jax/countdown"  # generated puzzles
  c.countdown.count = 490_314  # as many as the paper's training split
  c.countdown.data_seed = 1  # others than those of configs/sft.py
  c.countdown.curriculum = "uniform"  # uniform | static | adaptive
  c.countdown.adaptive = ml_collections.ConfigDict()
  c.countdown.adaptive.target = 0.40  # s*
  c.countdown.adaptive.temperature = 0.20  # tau
  c.countdown.adaptive.floor = 0.10  # epsilon
  c.countdown.adaptive.window = 20  # of a bucket's own steps
  c.countdown.adaptive.warm_up = 10  # steps
  c.countdown.replay = ml_collections.ConfigDict()
  c.countdown.replay.share = 0.0  # of a batch; paper: 0.25, or 0.10
  c.countdown.replay.warm_up = 10  # steps; or 30
  c.countdown.replay.lowest = 0.05  # mean pass rate; or 0.20
  c.countdown.replay.highest = 0.95  # or 0.80
  c.countdown.replay.most = 0  # replays of a prompt, 0 = any; or 3
  c.countdown.replay.decay = 0.8  # of the mean; the paper does not say
  c.countdown.mix = ml_collections.ConfigDict()
  c.countdown.mix.puzzles = ""  # a file of puzzles; "": none are mixed in
  c.countdown.mix.share = 0.5  # of a batch
  c.countdown.mix.bucket_shares = ()  # (): uniform; paper: 0.10, 0.40, 0.50
  c.countdown.proposals = 0  # a step; 0: no closed loop
  c.countdown.references = 2  # puzzles that a proposer is shown
  c.countdown.unlearnable_reward = 0.0  # of a proposal never or always solved
  c.countdown.bad_proposal_reward = -0.5  # of one that is no new puzzle

  # Ours, which knows our prompts; section 4.1 starts from
  # hf:asingh15/qwen-sft-countdown-defaultproj and the prompts it was taught.
  c.model.source = "/tmp/countdown_sft_qwen/model"
  c.model.dtype = "bfloat16"
  c.model.remat = "dots"
  c.rollout.slots = 256
  c.rollout.prompt_buckets = (256,)
  c.rollout.max_tokens = 1024
  c.rollout.decode_chunk = 64
  c.learner.estimator = "rloo"  # eq. 1
  c.learner.policy_loss = "sequence_weighted"
  c.learner.aggregation = "sequence_sum"
  c.learner.regularizer_aggregation = "token_mean"
  c.learner.entropy_coef = 1e-3
  c.learner.kl_coef = 1e-3
  c.learner.kl_estimator = "k3"
  c.learner.row_length = 1280
  c.learner.micro_rows = 16
  c.learner.max_micro_batches = 64
  c.optimizer.learning_rate = 1e-5
  c.optimizer.weight_decay = 1e-4
  c.optimizer.grad_clip = 0.0  # none
  c.train.steps = 100


def _paper_mixing(c: ml_collections.ConfigDict) -> None:
  """Section 4.2."""
  c.countdown.prompts = 16  # 4 x 4 accumulated
  c.countdown.group_size = 16
  c.learner.kl_coef = 5e-3
  c.optimizer.learning_rate = 5e-6


def _tiny(c: ml_collections.ConfigDict) -> None:
  """The model of `configs/sft.py:countdown_tiny`, minutes on two cores."""
  c.model.source = "embedded:countdown-tiny"
  c.model.dtype = "float32"
  c.model.remat = "none"
  c.countdown.prompts = 32
  c.countdown.prompt_style = "compact"
  c.countdown.count = 20_000
  c.rollout.slots = 256
  c.rollout.prompt_buckets = (40,)
  c.rollout.max_tokens = 160
  c.rollout.decode_chunk = 16
  # As it is scored: of what it does at 1, little is done at 0.6.
  c.rollout.temperature = 0.6
  c.learner.kl_coef = 0.0  # saves a third of an update
  c.learner.row_length = 200
  c.learner.micro_rows = 16
  c.learner.max_micro_batches = 16
  c.learner.chunk_tokens = 3200
  c.optimizer.learning_rate = 1.5e-4
  c.optimizer.b2 = 0.98  # few updates
  c.train.steps = 40
  c.train.save_every = 20


def _choose_prompts(c: ml_collections.ConfigDict, kind: str) -> None:
  """What the experiment changes: the distribution of prompts, alone."""
  if kind == "_static":
    c.countdown.curriculum = "static"
  if "replay" in kind or kind in ("_adaptive", "_closed_loop"):
    c.countdown.curriculum = "adaptive"
  if kind == "_replay":
    c.countdown.replay.share = 0.25
  if kind == "_conservative_replay":
    c.countdown.replay.share = 0.10
    c.countdown.replay.warm_up = 30
    c.countdown.replay.lowest = 0.20
    c.countdown.replay.highest = 0.80
    c.countdown.replay.most = 3
  if kind == "_random_mix":
    c.countdown.mix.puzzles = "/tmp/countdown_random.jsonl"
  if kind in ("_lm_mix", "_curriculum_mix"):
    c.countdown.mix.puzzles = "/tmp/countdown_proposed.jsonl"
  if kind == "_curriculum_mix":
    c.countdown.mix.bucket_shares = (0.10, 0.40, 0.50)
  if kind == "_closed_loop":
    c.countdown.proposals = c.countdown.prompts
