"""The adapters that a sampler holds on one base model."""

import functools
import heapq
import itertools

import jax
import numpy as np

from azr_jax.models import adapter_stack, adapters
from azr_jax.models.adapters import Lora
from azr_jax.rollout.adapter_ref import AdapterRef
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.weights import Weights
from azr_jax.types import Params


class AdapterTable:
  """Loads adapters into a sampler's stack, and frees their places.

  Only the thread that samples may call it.
  """

  def __init__(self, engine: Engine, weights: Weights):
    """Starts without adapters.

    Args:
      engine: an engine whose decoder has a stack.
      weights: the parameters that the stack is part of.
    """
    assert engine.model.lora is not None
    self._lora, self._weights = engine.model.lora, weights
    self._free = list(range(1, self._lora.stacked))
    self._numbers = itertools.count(1)
    self._put = jax.jit(
      functools.partial(adapter_stack.put, engine.model),
      donate_argnums=0,
      out_shardings=adapters.adapters_of(engine.param_shardings),
    )
    self._fit = jax.jit(adapter_stack.fit, static_argnums=(1, 2))

  @property
  def num_free(self) -> int:
    """Number of adapters that it has room for."""
    return len(self._free)

  def add(self, trained: Params, lora: Lora) -> AdapterRef:
    """Loads an adapter; requests may name it until `remove`.

    Args:
      trained: the adapter, float32, stacked.
      lora: its shape.

    Raises:
      ValueError: the adapter does not fit into the stack, or there is no room.
    """
    if not self._free:
      raise ValueError(
        f"an adapter more than {self._lora.stacked - 1}: expected at most as "
        "many as the sampler has room for"
      )
    fitted = self._fit(trained, lora, self._lora)
    index = heapq.heappop(self._free)
    params = self._weights.params
    assert params is not None
    stack = self._put(adapters.adapters_of(params), fitted, np.int32(index))
    self._weights.params = adapters.join(adapters.base_of(params), stack)
    return AdapterRef(index, next(self._numbers))

  def remove(self, adapter: AdapterRef) -> None:
    """Frees an adapter's place. No request may use it any more."""
    heapq.heappush(self._free, adapter.index)
