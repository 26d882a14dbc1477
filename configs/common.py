"""Defaults that every experiment shares; each file overrides what differs."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
  """Returns the shared sections, for a small model on one machine."""
  c = ml_collections.ConfigDict()
  c.system = "azr"  # which system: azr
  c.seed = 0  # root of every random draw

  c.model = ml_collections.ConfigDict()
  c.model.source = "embedded:azr-tiny"  # see azr_jax/models/load.py
  c.model.cache_dir = "~/.cache/azr_jax"  # downloaded weights
  c.model.dtype = "float32"  # compute type: float32 | bfloat16
  c.model.attention = "auto"  # auto | xla | cudnn (GPU) | splash (TPU)
  c.model.remat = "none"  # what the backward pass recomputes: none|dots|full

  c.mesh = ml_collections.ConfigDict()
  c.mesh.data = 1  # devices per axis; -1 takes what is left
  c.mesh.fsdp = -1
  c.mesh.tensor = 1

  # Logical parameter axis -> mesh axis ("" = replicated).
  c.sharding = ml_collections.ConfigDict()
  c.sharding.vocab = "tensor"
  c.sharding.embed = "fsdp"
  c.sharding.heads = "tensor"
  c.sharding.kv_heads = "tensor"
  c.sharding.head_size = ""
  c.sharding.mlp = "tensor"
  c.sharding.layers = ""

  c.rollout = ml_collections.ConfigDict()
  c.rollout.mesh = ml_collections.ConfigDict()  # sampling's own layout
  c.rollout.mesh.data = 0  # all 0: as `mesh`
  c.rollout.mesh.fsdp = 0
  c.rollout.mesh.tensor = 0
  c.rollout.slots = 64  # sequences decoded together
  c.rollout.prompt_buckets = (128, 256)  # compiled prompt lengths, tokens
  c.rollout.max_tokens = 128  # longest completion, tokens
  c.rollout.prefill_tokens = 1024  # prompt tokens per device call
  c.rollout.decode_chunk = 32  # sampled tokens of a slot per device call
  c.rollout.cache_chunk = 128  # cache entries read at a time
  c.rollout.extend_chunk = 0  # of an answer to a reply, per call; 0 = no turns
  c.rollout.temperature = 1.0  # paper: 1.0
  c.rollout.top_k = 0  # 0 = off; must be off when training
  c.rollout.top_p = 1.0  # paper: 1.0; must be 1 when training
  c.rollout.stop_strings = ("</answer>",)

  c.learner = ml_collections.ConfigDict()
  # trr++ | trr++_by_token | reinforce++ | grpo | grpo_mean | rloo | gae
  c.learner.estimator = "trr++"
  c.learner.normalize_advantages = False  # over the tokens of the batch
  # token_mean | sequence_mean | sequence_sum | fixed_length
  c.learner.aggregation = "token_mean"
  c.learner.regularizer_aggregation = "token_mean"  # of entropy and KL terms
  c.learner.policy_loss = "clipped"  # clipped | sequence_weighted
  c.learner.iw_clip_max = 10.0  # sequence_weighted: largest weight
  c.learner.clip_low = 0.2  # PPO clip below 1
  c.learner.clip_high = 0.2  # PPO clip above 1
  c.learner.entropy_coef = 0.001  # paper: 0.001
  c.learner.kl_coef = 0.0  # paper: no KL
  c.learner.kl_estimator = "k3"  # k1 | k2 | k3 | full: whole vocabulary
  c.learner.epochs = 1  # optimizer steps per batch; paper: 1
  c.learner.row_length = 384  # tokens per packed row
  c.learner.micro_rows = 8  # rows per micro-batch
  c.learner.max_micro_batches = 16  # compiled room; more compiles once again
  c.learner.chunk_tokens = 1024  # tokens whose logits exist at once

  c.optimizer = ml_collections.ConfigDict()
  c.optimizer.learning_rate = 1e-6  # paper: 1e-6, constant
  c.optimizer.muon_learning_rate = 0.0  # layers' matrices; 0 = AdamW
  c.optimizer.warmup_steps = 0  # updates
  c.optimizer.decay_steps = 0  # updates; 0 = constant
  c.optimizer.decay = "cosine"  # cosine | linear
  c.optimizer.final_learning_rate = 0.0
  c.optimizer.b1 = 0.9
  c.optimizer.b2 = 0.999
  c.optimizer.weight_decay = 0.01
  c.optimizer.grad_clip = 1.0  # paper: 1.0; 0 = off

  # Before every so many steps, with the sampling of training.
  c.evaluation = ml_collections.ConfigDict()
  c.evaluation.every = 0  # steps; 0 = never
  c.evaluation.benchmarks = ""  # names between commas, see registry.py
  c.evaluation.data = ""  # as --data of azr_jax.evaluate
  c.evaluation.limit = 50  # items of each
  c.evaluation.samples = 1  # answers to each
  c.evaluation.prompt_style = "full"  # as the benchmarks take

  # Of learner.estimator = "gae" alone; values of ORZ.
  c.critic = ml_collections.ConfigDict()
  c.critic.gamma = 1.0  # discount
  c.critic.gae_lambda = 1.0  # paper: 1
  c.critic.updates = 12  # optimizer steps per batch
  c.critic.value_clip = 0.2  # 0 = off; the paper names none, its code 0.2
  c.critic.head_init = "code"  # code: N(0, 1/(D+1)) | paper: U(-sqrt5, sqrt5)
  c.critic.optimizer = ml_collections.ConfigDict(c.optimizer.to_dict())
  c.critic.optimizer.learning_rate = 5e-6
  c.critic.optimizer.b2 = 0.95
  c.critic.optimizer.weight_decay = 0.0

  c.executor = ml_collections.ConfigDict()
  c.executor.backend = "local"  # "ray": on the nodes of a Ray cluster
  c.executor.nodes = 0  # ray: actors; 0 = one per node with enough cores
  c.executor.address = ""  # ray: of the cluster; "" = find or start one
  c.executor.workers = 2  # pairs of processes that run programs, per machine
  c.executor.timeout_s = 2.0  # wall clock per call of a program, seconds
  c.executor.memory_mb = 512  # address space per program
  c.executor.unsafe = False  # run without seccomp

  c.hosts = ml_collections.ConfigDict()
  c.hosts.timeout_s = 600.0  # how long hosts of a pod wait for one another

  c.train = ml_collections.ConfigDict()
  c.train.start_from = ""  # a run's folder: its newest policy and critic
  c.train.steps = 100
  c.train.save_every = 10  # steps between checkpoints; paper: 10
  c.train.keep_checkpoints = 2
  c.train.samples_per_step = 12  # trajectories whose texts are kept
  c.train.flag_texts = True  # keep apart what a person should read, safety.py
  c.train.flag_classifier = ""  # MODULE:FUNCTION asked besides its rules
  return c
