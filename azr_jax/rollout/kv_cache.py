"""The keys and values of a stream: pages on the devices, and who uses them."""

from typing import Any

from azr_jax.rollout.engine import Engine
from azr_jax.rollout.page_pool import PagePool


class KVCache:
  """Pages that hold keys and values of one version of the parameters.

  Attributes:
    pool: keys and values on the devices; calls of the engine replace it.
    pages: which of its pages are free, shared, or known by their tokens.
  """

  def __init__(self, engine: Engine):
    """Makes free pages.

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
