"""The config of a decoder: every number that its computation depends on."""

import dataclasses
from typing import Any, TypeAlias

import numpy as np

# Slightly below the largest float32, in which devices compute.
MAX_FLOAT = 3.4e38


# Values of `ModelConfig.activation`: x sigmoid(x), and GELU's tanh formula.
SILU, GELU_TANH = "silu", "gelu_tanh"
ACTIVATIONS = (SILU, GELU_TANH)


@dataclasses.dataclass(frozen=True)
class LinearRopeScaling:
  """Position interpolation (`rope_type: linear`).

  Attributes:
    factor: divisor of all frequencies.
  """

  factor: float


@dataclasses.dataclass(frozen=True)
class Llama3RopeScaling:
  """Frequency scaling of Llama 3.1 (`rope_type: llama3`).

  Attributes:
    factor: divisor of the frequencies with long wavelengths.
    low_freq_factor: wavelengths above `original_max_position` divided by this
      are long.
    high_freq_factor: wavelengths below `original_max_position` divided by this
      keep their frequency; those in between are blended.
    original_max_position: maximum sequence length before context extension.
  """

  factor: float
  low_freq_factor: float
  high_freq_factor: float
  original_max_position: int


@dataclasses.dataclass(frozen=True)
class YarnRopeScaling:
  """YaRN (arXiv 2309.00071; `rope_type: yarn`).

  Attributes:
    factor: divisor of the frequencies with long wavelengths.
    original_max_position: maximum sequence length before context extension.
    attention_factor: factor of all rotated queries and keys.
    beta_fast: channel pairs that turn more often than this in the original
      length keep their frequency.
    beta_slow: those that turn less often than this are divided by `factor`;
      those in between are blended.
    truncate: whether the blend begins and ends at whole channel pairs.
  """

  factor: float
  original_max_position: int
  attention_factor: float
  beta_fast: float = 32.0
  beta_slow: float = 1.0
  truncate: bool = True


@dataclasses.dataclass(frozen=True)
class LongRopeScaling:
  """LongRoPE (arXiv 2402.13753; `rope_type: longrope`).

  Attributes:
    short_factors: divisors of the frequencies in a run whose sequences are not
      longer than `original_max_position`, one per channel pair.
    long_factors: the divisors in any other run.
    original_max_position: maximum sequence length before context extension.
    attention_factor: factor of all rotated queries and keys.
    is_long: whether the run has the long factors, from `rope.for_length`.
  """

  short_factors: tuple[float, ...]
  long_factors: tuple[float, ...]
  original_max_position: int
  attention_factor: float
  is_long: bool = False


RopeScaling: TypeAlias = (
  LinearRopeScaling | Llama3RopeScaling | YarnRopeScaling | LongRopeScaling
)


@dataclasses.dataclass(frozen=True)
class ClampedSwiglu:
  """The activation of experts in gpt-oss: (up + 1) gate sigmoid(alpha gate).

  Attributes:
    alpha: the sigmoid's factor.
    limit: the largest gate, and the largest magnitude of `up`.
  """

  alpha: float
  limit: float


@dataclasses.dataclass(frozen=True)
class ExpertShape:
  """The experts of every layer, in place of its MLP (Qwen3-MoE, gpt-oss).

  Attributes:
    count: X, the experts of a layer.
    per_token: how many of them each token gets.
    size: the width of an expert's MLP.
    normalized: whether the weights of a token's experts sum to 1. Otherwise
      they are the router's probabilities.
    biases: whether the router and all projections have biases.
    clamp: the activation; None is silu(gate) up.
  """

  count: int
  per_token: int
  size: int
  normalized: bool = True
  biases: bool = False
  clamp: ClampedSwiglu | None = None

  @property
  def index_dtype(self) -> np.dtype:
    """The smallest dtype of an expert's index, or of X, which is no expert."""
    return np.min_scalar_type(self.count)

  def __post_init__(self) -> None:
    if self.size < 1 or not 0 < self.per_token <= self.count:
      raise ValueError(
        f"experts={self}: expected a positive size, and per_token from 1 to "
        "count"
      )


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """The computation of one decoder, of any family.

  The defaults are those of Llama 3.

  Attributes:
    vocab_size: V.
    hidden_size: D.
    num_layers: L.
    num_heads: H, query heads.
    num_kv_heads: K, key and value heads; divides H.
    head_size: E.
    mlp_size: F.
    rope_theta: base of the rotary frequencies.
    norm_eps: epsilon of every RMSNorm.
    tie_embeddings: whether the output head is the transposed embedding.
    max_positions: maximum sequence length in tokens.
    rope_scaling: scaling of the rotary frequencies, or None.
    qkv_bias: whether the q, k and v projections have biases (Qwen2).
    qk_norm: whether each query and key head has an RMSNorm (Qwen3, Gemma 3).
    family: a name in `families.registry`. It decides about names and formats of
      files alone.
    joint_qk_norm: whether one RMSNorm normalizes the queries of all heads
      together, and another the keys (OLMo 2).
    norm_before: whether attention and MLP normalize their input.
    norm_after: whether their output is normalized (OLMo 2, Gemma 3).
    norm_offset: whether 1 is added to the scale of every RMSNorm (Gemma 3).
    activation: the function that the MLP's gate applies, from `ACTIVATIONS`.
    embedding_scale: factor of token embeddings.
    attention_scale: factor of attention scores. None: 1 / sqrt(E).
    residual_scale: factor of the outputs of attention and MLP.
    logits_scale: divisor of the logits.
    rotary_size: number of leading channels of a head that are rotated. None
      rotates all.
    rotated: whether each layer rotates queries and keys; () rotates in all.
    windows: number of tokens that a token of each layer attends to, including
      itself; 0: all earlier ones. () has no layer with a window.
    local_rope_theta: base of the rotary frequencies in layers with a window,
      which then ignore `rope_scaling`. None treats all layers alike.
    o_bias: whether the projection of attention's output has a bias (gpt-oss).
    sinks: whether each query head has one more key, of a learned score and
      without a value, that every token sees (gpt-oss).
    experts: the experts of each layer, which then has no MLP of `mlp_size`.
      None has the MLP.
  """

  vocab_size: int
  hidden_size: int
  num_layers: int
  num_heads: int
  num_kv_heads: int
  head_size: int
  mlp_size: int
  rope_theta: float
  norm_eps: float
  tie_embeddings: bool
  max_positions: int
  rope_scaling: RopeScaling | None = None
  qkv_bias: bool = False
  qk_norm: bool = False
  family: str = "llama"
  joint_qk_norm: bool = False
  norm_before: bool = True
  norm_after: bool = False
  norm_offset: bool = False
  activation: str = SILU
  embedding_scale: float = 1.0
  attention_scale: float | None = None
  residual_scale: float = 1.0
  logits_scale: float = 1.0
  rotary_size: int | None = None
  rotated: tuple[bool, ...] = ()
  windows: tuple[int, ...] = ()
  local_rope_theta: float | None = None
  o_bias: bool = False
  sinks: bool = False
  experts: ExpertShape | None = None

  @property
  def distinct_windows(self) -> tuple[int, ...]:
    """The windows that some layer has, ascending; (0,) without windows."""
    return tuple(sorted(set(self.windows))) or (0,)

  @property
  def active_mlp_size(self) -> int:
    """The channels of all MLPs that a token passes in a layer."""
    if self.experts is None:
      return self.mlp_size
    return self.experts.per_token * self.experts.size

  def __post_init__(self) -> None:
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if field.type is int and not (_is_of(value, int) and 0 < value < 1 << 31):
        raise ValueError(f"{field.name}={value!r}: expected a positive integer")
      if field.type is float and not (
        _is_of(value, int | float) and 0 < value < MAX_FLOAT
      ):
        raise ValueError(f"{field.name}={value!r}: expected a positive number")
    if self.num_heads % self.num_kv_heads:
      raise ValueError(
        f"num_heads={self.num_heads}: expected a multiple of "
        f"num_kv_heads={self.num_kv_heads}"
      )
    if self.head_size % 2:
      raise ValueError(
        f"head_size={self.head_size}: expected an even number for RoPE"
      )
    self._check_layers()

  def _check_layers(self) -> None:
    """Raises ValueError if a part of some layer cannot be computed."""
    if self.activation not in ACTIVATIONS:
      raise ValueError(
        f"activation={self.activation!r}: expected one of {ACTIVATIONS}"
      )
    rotary = self.rotary_size
    if rotary is not None and (rotary % 2 or not 0 < rotary <= self.head_size):
      raise ValueError(
        f"rotary_size={rotary}: expected an even number of at most "
        f"head_size={self.head_size}"
      )
    for name in ("rotated", "windows"):
      if len(getattr(self, name)) not in (0, self.num_layers):
        raise ValueError(
          f"{name}={getattr(self, name)}: expected one value per layer, "
          f"{self.num_layers}"
        )
    if any(not 0 <= window < 1 << 31 for window in self.windows):
      raise ValueError(f"windows={self.windows}: expected no negative numbers")


def _is_of(value: object, kind: Any) -> bool:
  """Returns whether a value is a number of a type; bools are not numbers."""
  return isinstance(value, kind) and not isinstance(value, bool)
