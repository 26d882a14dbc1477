"""Suggests the right key for an unknown one.

The lookup tries the names of trl, verl, vLLM and `transformers`, then keys that
differ by a letter or two, then the last part of the key, then similar
spellings.
"""

import difflib
from collections.abc import Iterable

_NEAR = 0.5
# Similarity of a typing mistake: a missing or wrong letter.
_MISTYPED = 0.9
# Our keys -> names in other libraries. `*` is the section of any system.
_NAMES_ELSEWHERE = {
  "*.data": "dataset_name dataset train_dataset train_files",
  "*.eval_data": "eval_dataset val_files test_files",
  "*.group_size": "num_generations num_samples_per_prompt n_samples_per_prompt "
  "rollout_n num_return_sequences n",
  "*.prompts": "train_batch_size batch_size rollout_batch_size "
  "generation_batch_size prompts_per_step",
  "*.reward": "reward_funcs reward_function reward_fn reward_weights",
  "critic.gae_lambda": "lam lambd",
  "evaluation.every": "eval_steps test_freq eval_every",
  "evaluation.samples": "num_eval_samples",
  "learner.clip_low learner.clip_high": "epsilon clip_range cliprange "
  "clip_ratio eps_clip",
  "learner.clip_high": "epsilon_high clip_ratio_high cliprange_high "
  "eps_clip_high",
  "learner.clip_low": "epsilon_low clip_ratio_low cliprange_low eps_clip_low",
  "learner.dual_clip": "delta clip_ratio_c",
  "learner.entropy_coef": "entropy_coeff ent_coef",
  "learner.epochs": "num_iterations ppo_epochs num_ppo_epochs update_epochs",
  "learner.estimator": "adv_estimator advantage_estimator scale_rewards",
  "learner.kl_coef": "beta kl_beta kl_loss_coef init_kl_coef kl_coeff",
  "learner.kl_estimator": "kl_loss_type",
  "learner.micro_rows": "per_device_train_batch_size micro_batch_size "
  "train_micro_batch_size_per_gpu micro_train_batch_size "
  "ppo_micro_batch_size_per_gpu",
  "learner.max_micro_batches": "gradient_accumulation_steps "
  "gradient_accumulation",
  "learner.policy_loss learner.aggregation": "loss_type loss_agg_mode",
  "model.attention": "attn_implementation",
  "model.dtype": "bf16 fp16 torch_dtype",
  "model.param_dtype": "param_dtype master_dtype pure_bf16",
  "model.remat": "gradient_checkpointing enable_gradient_checkpointing",
  "model.source": "model_name model_name_or_path model_path pretrain",
  "optimizer.b1": "adam_beta1 beta1",
  "optimizer.b2": "adam_beta2 beta2",
  "optimizer.decay": "lr_scheduler_type lr_scheduler",
  "optimizer.grad_clip": "max_grad_norm clip_grad max_norm",
  "optimizer.learning_rate": "lr actor_lr actor_learning_rate",
  "optimizer.warmup_steps": "lr_warmup_steps num_warmup_steps",
  "rollout.cache_gib": "gpu_memory_utilization vllm_gpu_memory_utilization",
  "rollout.max_tokens": "max_completion_length max_new_tokens "
  "max_response_length max_completion_tokens max_gen_len "
  "generate_max_len",
  "rollout.mesh.tensor": "tensor_parallel_size tensor_model_parallel_size "
  "vllm_tensor_parallel_size",
  "rollout.prompt_buckets": "max_prompt_length prompt_max_len",
  "rollout.slots": "max_num_seqs",
  "rollout.stop_strings": "stop stop_sequences",
  "shaping.mask_truncated": "mask_truncated_completions overlong_filter",
  "shaping.overlong_penalty": "overlong_penalty_factor",
  "train.keep_checkpoints": "save_total_limit max_actor_ckpt_to_keep",
  "train.save_every": "save_steps save_freq save_interval",
  "train.show_every": "logging_steps log_freq",
  "train.steps": "max_steps total_training_steps num_train_steps "
  "num_train_epochs total_epochs num_episodes",
  "train.trackers.names": "report_to logger",
}
# A name in another library -> our keys.
SYNONYMS = {
  name: tuple(keys.split())
  for keys, names in _NAMES_ELSEWHERE.items()
  for name in names.split()
}


def meant(key: str, known: Iterable[str]) -> list[str]:
  """Returns the known keys that an unknown key may mean, [] if none is close.

  Args:
    key: the unknown key, dotted or only its last part.
    known: all valid keys, dotted, or the fields of one section.
  """
  # `sorted` is stable: equal depths keep their order.
  keys = sorted(known, key=lambda one: one.count("."))
  last = key.rpartition(".")[2]
  found = [_find(one, keys) for one in SYNONYMS.get(last, ())]
  if found and all(found):
    return found
  if mistyped := difflib.get_close_matches(key, keys, n=1, cutoff=_MISTYPED):
    return mistyped
  same = [one for one in keys if one.rpartition(".")[2] == last]
  if same:
    return same[:1]
  if "." in key:
    return difflib.get_close_matches(key, keys, n=1, cutoff=_NEAR)
  by_last: dict[str, str] = {}
  for one in keys:
    by_last.setdefault(one.rpartition(".")[2], one)
  near = difflib.get_close_matches(key, by_last, n=1, cutoff=_NEAR)
  return [by_last[one] for one in near]


def _find(target: str, keys: Iterable[str]) -> str:
  """Returns the known key that matches a key of our table, or ""."""
  section, _, last = target.rpartition(".")
  for key in keys:
    if key in (target, last):
      return key
    if section == "*" and key.count(".") == 1 and key.endswith(f".{last}"):
      return key
  return ""
