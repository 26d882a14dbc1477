"""The KV cache of a stream: pages on the devices, and their bookkeeping."""

from typing import Any

from azr_jax.rollout.engine import Engine
from azr_jax.rollout.page_pool import PagePool


class KVCache:
  """Pages with the keys and values of one version of the parameters.

  Attributes:
    pool: keys and values on the devices; engine calls replace it.
    pages: tracks which pages are free, shared or known by their tokens.
  """

  def __init__(self, engine: Engine, shares_prefixes: bool = True):
    """Creates free pages.

    Args:
      engine: the compiled functions.
      shares_prefixes: whether prompts with the same first tokens share pages.
    """
    shapes = engine.shapes
    self.pool: Any = engine.init_pool()
    self.pages = PagePool(
      shapes.devices, engine.num_pages, shapes.page_size, shares_prefixes
    )
