"""Hugging Face transformers as the baseline, with the same weights.

It needs torch, which only the `test` extra installs.
"""

import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers

from azr_jax.lab.bench.workload import SamplerWorkload, UpdateWorkload
from azr_jax.models import safetensors_io
from azr_jax.models.config import ModelConfig
from azr_jax.types import Params


def load(config: ModelConfig, params: Params, dtype: str) -> Any:
  """Converts parameters to a transformers model, on a GPU if there is one.

  Args:
    config: the decoder's config.
    params: the decoder's parameters.
    dtype: name of the compute dtype.
  """
  with tempfile.TemporaryDirectory() as folder:
    safetensors_io.save(params, config, pathlib.Path(folder), dtype=dtype)
    model = transformers.AutoModelForCausalLM.from_pretrained(
      folder, dtype=getattr(torch, dtype), attn_implementation="sdpa"
    )
  return model.to("cuda" if torch.cuda.is_available() else "cpu")


def _wait() -> None:
  """Waits until the GPU has finished its queue."""
  if torch.cuda.is_available():
    torch.cuda.synchronize()


def sampler(
  model: Any, workload: SamplerWorkload, vocab_size: int
) -> Callable[[], float]:
  """Returns a function that samples the workload once and returns seconds.

  A batch has `slots` sequences and takes as long as its longest response.
  Log-probabilities are left out, because they slow `generate` down.

  Args:
    model: a model from `load`.
    workload: the prompts and response lengths.
    vocab_size: upper bound of the prompt ids.
  """
  ids = torch.as_tensor(workload.prompt_ids(vocab_size), dtype=torch.long)
  ids = ids.repeat_interleave(workload.samples, dim=0).to(model.device)
  max_new_tokens = torch.as_tensor(workload.max_new_tokens())
  max_new_tokens = max_new_tokens.repeat_interleave(workload.samples)

  def run() -> float:
    start = time.perf_counter()
    for first in range(0, len(ids), workload.slots):
      batch = ids[first : first + workload.slots]
      longest = int(max_new_tokens[first : first + workload.slots].max())
      output = model.generate(
        batch,
        attention_mask=torch.ones_like(batch),
        do_sample=True,
        top_k=0,
        top_p=workload.top_p,
        max_new_tokens=longest,
        min_new_tokens=longest,
        pad_token_id=0,
      )
      assert output.shape[1] == workload.prompt_tokens + longest
    _wait()
    return time.perf_counter() - start

  return run


def updater(
  model: Any, workload: UpdateWorkload, vocab_size: int
) -> Callable[[], float]:
  """Returns a function that does one GRPO step and returns seconds.

  A step runs on padded rows: forward pass, log-probabilities of the targets,
  clipped surrogate, backward pass, gradient clipping by norm, AdamW.

  Args:
    model: a model from `load`, updated in place.
    workload: the sequence lengths.
    vocab_size: upper bound of the token ids.
  """
  generator = torch.Generator().manual_seed(0)
  shape = (workload.sequences, workload.length)
  tokens = torch.randint(1, vocab_size, shape, generator=generator)
  lengths = torch.as_tensor(workload.lengths())
  is_token = torch.arange(workload.length)[None] < lengths[:, None]
  tokens, is_token = tokens.to(model.device), is_token.to(model.device)
  advantages = torch.randn(len(tokens), 1, generator=generator)
  advantages = advantages.to(model.device)
  optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)

  def run() -> float:
    start = time.perf_counter()
    logits = model(tokens, attention_mask=is_token.long()).logits[:, :-1]
    logps = torch.log_softmax(logits.float(), dim=-1)
    logps = logps.gather(-1, tokens[:, 1:, None])[..., 0]
    ratio = torch.exp(logps - logps.detach())
    clipped = torch.clamp(ratio, 0.8, 1.2)
    surrogate = -torch.minimum(ratio * advantages, clipped * advantages)
    mask = is_token[:, 1:]
    loss = (surrogate * mask).sum() / mask.sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    _wait()
    return time.perf_counter() - start

  return run
