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

  def __init__(self, engine: Engine):
    """Creates free pages.

    Args:
      engine: the compiled functions.
    """
    settings = engine.settings
    self.pool: Any = engine.init_pool()
    self.pages = PagePool(
      engine.devices,
      engine.num_pages,
      settings.page_size,
      settings.prefix_cache,
    )
