"""A PyTorch decoder, as fast as torch.compile makes it, for comparison.

Layers are compiled one by one (regional compilation), attention is PyTorch's
fused kernel, AdamW is fused, and a decoded token is one CUDA graph. Weights are
random. It needs torch, and on a CPU nothing is compiled.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import checkpoint

from azr_jax.models.config import ModelConfig

F = torch.nn.functional


class Layer(torch.nn.Module):
  """A layer with grouped-query attention and SwiGLU.

  It computes in the type of its input, whatever the type of its parameters.
  """

  def __init__(self, config: ModelConfig):
    super().__init__()
    self._heads, self._kv_heads = config.num_heads, config.num_kv_heads
    self._head_size, self._eps = config.head_size, config.norm_eps
    joined = config.num_heads + 2 * config.num_kv_heads
    self.attention_norm = _ones(config.hidden_size)
    self.qkv = _matrix(joined * config.head_size, config.hidden_size)
    self.qkv_bias = None
    if config.qkv_bias:
      self.qkv_bias = torch.nn.Parameter(torch.zeros(joined * config.head_size))
    self.out = _matrix(config.hidden_size, config.num_heads * config.head_size)
    self.mlp_norm = _ones(config.hidden_size)
    self.gate_up = _matrix(2 * config.mlp_size, config.hidden_size)
    self.down = _matrix(config.hidden_size, config.mlp_size)

  def forward(
    self,
    x: torch.Tensor,
    angles: tuple[torch.Tensor, torch.Tensor],
    cache: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
  ) -> torch.Tensor:
    """Returns the layer's output [B, S, D].

    Args:
      x: the input [B, S, D].
      angles: cosines and sines [S, E] of the rotary positions.
      cache: keys and values [B, K, S, E], which are read whole, and the index
        [1] to write x's to. Without it, attention is causal within x.
    """
    B, S, _ = x.shape
    bias = None if self.qkv_bias is None else self.qkv_bias.to(x.dtype)
    normed = norm(x, self.attention_norm, self._eps)
    qkv = F.linear(normed, self.qkv.to(x.dtype), bias)
    qkv = qkv.view(B, S, -1, self._head_size).transpose(1, 2)
    q, k, v = qkv.split([self._heads, self._kv_heads, self._kv_heads], dim=1)
    q, k = _rotate(q, angles), _rotate(k, angles)
    if cache is not None:
      keys, values, position = cache
      k = keys.index_copy_(2, position, k)
      v = values.index_copy_(2, position, v)
    out = F.scaled_dot_product_attention(
      q, k, v, is_causal=cache is None, enable_gqa=True
    )
    out = out.transpose(1, 2).reshape(B, S, -1)
    x = x + F.linear(out, self.out.to(x.dtype))
    normed = norm(x, self.mlp_norm, self._eps)
    gate, up = F.linear(normed, self.gate_up.to(x.dtype)).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, self.down.to(x.dtype))


class TorchDecoder(torch.nn.Module):
  """A Llama or Qwen2.5 decoder."""

  def __init__(self, config: ModelConfig):
    super().__init__()
    if config.family not in ("llama", "qwen2") or config.rope_scaling:
      raise ValueError(
        "the torch baseline has Llama's and Qwen2's layers without scaled "
        "positions: expected a model like Qwen2.5 or SmolLM2"
      )
    self.config = config
    self.embedding = _matrix(config.vocab_size, config.hidden_size)
    self.layers = torch.nn.ModuleList(
      Layer(config) for _ in range(config.num_layers)
    )
    self.final_norm = _ones(config.hidden_size)
    self.head = self.embedding
    if not config.tie_embeddings:
      self.head = _matrix(config.vocab_size, config.hidden_size)

  def compile_layers(self) -> None:
    """Compiles the layers, which share their code, if this is on a GPU."""
    if self.embedding.is_cuda:
      for layer in self.layers:
        layer.compile(dynamic=False)

  def angles(
    self, positions: torch.Tensor, dtype: torch.dtype
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the cosines and sines [S, E] of positions [S]."""
    size = self.config.head_size
    steps = torch.arange(0, size, 2, device=positions.device).float() / size
    angles = positions[:, None].float() * self.config.rope_theta**-steps
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)

  def final(self, x: torch.Tensor) -> torch.Tensor:
    """Applies the last norm."""
    return norm(x, self.final_norm, self.config.norm_eps)


def make(config: ModelConfig, dtype: torch.dtype) -> TorchDecoder:
  """Returns a decoder with random weights, on a GPU if there is one."""
  torch.manual_seed(0)
  # float32 products may use TF32; bfloat16 models have none.
  torch.set_float32_matmul_precision("high")
  with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
    decoder = TorchDecoder(config)
  return decoder.to(dtype)


def updater(
  decoder: TorchDecoder,
  sequences: int,
  length: int,
  chunk_tokens: int,
  recomputes: bool,
) -> Callable[[], float]:
  """Returns a function that does one policy-gradient step; returns seconds.

  The parameters are float32 and the layers compute in bfloat16. Logits are
  computed, and recomputed, `chunk_tokens` at a time.

  Args:
    decoder: the decoder, updated in place.
    sequences: number of sequences.
    length: tokens per sequence.
    chunk_tokens: tokens whose logits exist at once.
    recomputes: whether the backward pass recomputes each layer.
  """
  device = decoder.embedding.device
  shape = sequences, length + 1
  tokens = torch.randint(1, decoder.config.vocab_size, shape, device=device)
  targets = tokens[:, 1:].reshape(-1)
  advantages = torch.randn(sequences, 1, device=device)
  advantages = advantages.expand(sequences, length).reshape(-1)
  angles = decoder.angles(torch.arange(length, device=device), torch.bfloat16)
  optimizer = torch.optim.AdamW(
    decoder.parameters(), lr=1e-6, fused=device.type == "cuda"
  )
  decoder.compile_layers()
  loss_fn = _surrogate
  if device.type == "cuda":
    loss_fn = torch.compile(_surrogate, dynamic=False)

  def run() -> float:
    start = time.perf_counter()
    x = decoder.embedding[tokens[:, :-1]].to(torch.bfloat16)
    for layer in decoder.layers:
      if recomputes:
        x = checkpoint.checkpoint(layer, x, angles, use_reentrant=False)
      else:
        x = layer(x, angles)
    hidden = decoder.final(x).reshape(-1, x.shape[-1])
    head = decoder.head.to(torch.bfloat16)
    losses = [
      checkpoint.checkpoint(loss_fn, *parts, head, use_reentrant=False)
      for parts in zip(
        hidden.split(chunk_tokens),
        targets.split(chunk_tokens),
        advantages.split(chunk_tokens),
        strict=True,
      )
    ]
    (sum(losses[1:], losses[0]) / len(hidden)).backward()
    torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    _wait(device)
    return time.perf_counter() - start

  return run


@torch.inference_mode()
def generator(
  decoder: TorchDecoder, slots: int, cached_tokens: int, new_tokens: int
) -> Callable[[], float]:
  """Returns a function that decodes tokens of all slots; returns seconds.

  All slots have the same length, so attention needs no mask. It reads the whole
  cache, which has room for the new tokens.

  Args:
    slots: sequences decoded together.
    cached_tokens: cached tokens per sequence at the start.
    new_tokens: tokens to decode per sequence.
  """
  c, like = decoder.config, decoder.embedding
  shape = slots, c.num_kv_heads, cached_tokens + new_tokens, c.head_size
  token = torch.ones(slots, dtype=torch.long, device=like.device)
  position = torch.full_like(token[:1], cached_tokens)
  caches = [
    (like.new_zeros(shape), like.new_zeros(shape), position)
    for _ in decoder.layers
  ]
  noise = torch.ones(slots, c.vocab_size, device=like.device)
  decoder.compile_layers()

  def step() -> None:
    angles = decoder.angles(position, like.dtype)
    x = decoder.embedding[token][:, None]
    for layer, cache in zip(decoder.layers, caches, strict=True):
      x = layer(x, angles, cache)
    logits = F.linear(decoder.final(x)[:, 0], decoder.head).float()
    # The Gumbel-max trick, and the log-probability that training needs.
    chosen = (logits - noise.exponential_().log()).argmax(dim=-1)
    torch.log_softmax(logits, dim=-1).gather(-1, chosen[:, None])
    token.copy_(chosen)
    position.add_(1)

  @torch.inference_mode()
  def run() -> float:
    position.fill_(cached_tokens)
    _wait(like.device)
    start = time.perf_counter()
    for _ in range(new_tokens):
      replay()
    _wait(like.device)
    return time.perf_counter() - start

  replay: Callable[[], Any] = step
  if like.is_cuda:
    for _ in range(3):  # Compiles and fills PyTorch's caches before capture.
      step()
    _wait(like.device)
    graph = torch.cuda.CUDAGraph()
    position.fill_(cached_tokens)
    with torch.cuda.graph(graph):
      step()
    replay = graph.replay
  return run


def norm(x: torch.Tensor, scale: torch.Tensor, eps: float) -> torch.Tensor:
  """Returns RMSNorm of the last axis, computed in float32."""
  exact = F.rms_norm(x.float(), scale.shape, scale.float(), eps)
  return exact.to(x.dtype)


def _rotate(
  x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
  """Turns the halves of each head [..., S, E] by rotary angles."""
  first, second = x.chunk(2, dim=-1)
  return x * angles[0] + torch.cat([-second, first], dim=-1) * angles[1]


def _surrogate(
  hidden: torch.Tensor,
  targets: torch.Tensor,
  advantages: torch.Tensor,
  head: torch.Tensor,
) -> torch.Tensor:
  """Returns the clipped surrogate loss of a chunk of tokens, summed."""
  logits = F.linear(hidden, head).float()
  logps = torch.log_softmax(logits, dim=-1).gather(-1, targets[:, None])[:, 0]
  ratio = torch.exp(logps - logps.detach())
  clipped = torch.clamp(ratio, 0.8, 1.2)
  return -torch.minimum(ratio * advantages, clipped * advantages).sum()


def _ones(size: int) -> torch.nn.Parameter:
  return torch.nn.Parameter(torch.ones(size))


def _matrix(rows: int, columns: int) -> torch.nn.Parameter:
  return torch.nn.Parameter(0.02 * torch.randn(rows, columns))


def _wait(device: torch.device) -> None:
  """Waits until a GPU has finished its queue."""
  if device.type == "cuda":
    torch.cuda.synchronize()
