"""The page tables on the host: free pages, and reference counts of others."""

import dataclasses
import heapq


@dataclasses.dataclass(eq=False)
class CachedTokens:
  """The cached beginning of a prompt or a sequence.

  Attributes:
    device: of its pages, as rows are split over devices.
    pages: their indices among the pages of the device; the last ones may hold
      no tokens yet.
    count: how many tokens are cached.
  """

  device: int
  pages: list[int] = dataclasses.field(default_factory=list)
  count: int = 0


class PagePool:
  """The pages of all devices.

  A page may be shared; it is free again when the last of those that share it
  has released it. The free page with the smallest index is taken first, so
  which pages are taken follows from the calls alone.
  """

  def __init__(self, devices: int, num_pages: int, page_tokens: int):
    """Makes free pages.

    Args:
      devices: devices that rows are split over.
      num_pages: of each of them.
      page_tokens: C, tokens of a page.
    """
    self.page_tokens = page_tokens
    self._free = [list(range(num_pages)) for _ in range(devices)]
    self._ref_counts = [[0] * num_pages for _ in range(devices)]

  def num_free(self, device: int) -> int:
    """Returns how many pages of a device are free."""
    return len(self._free[device])

  def pages_for(self, tokens: int) -> int:
    """Returns how many pages so many tokens need."""
    return -(-tokens // self.page_tokens)

  def missing(self, cached: CachedTokens, tokens: int) -> int:
    """Returns how many more pages so many tokens need; below 0 if fewer."""
    return self.pages_for(tokens) - len(cached.pages)

  def allocate(
    self, cached: CachedTokens, tokens: int, reserve: int = 0
  ) -> bool:
    """Takes pages, so that there is room for so many tokens in all.

    Args:
      cached: gets the pages.
      tokens: cached ones and others.
      reserve: how many pages must stay free, if any is taken.

    Returns:
      Whether enough pages were free; if not, none is taken.
    """
    missing = self.missing(cached, tokens)
    free = self._free[cached.device]
    if missing > 0 and missing + reserve > len(free):
      return False
    for _ in range(missing):
      page = heapq.heappop(free)
      self._ref_counts[cached.device][page] = 1
      cached.pages.append(page)
    return True

  def share(self, cached: CachedTokens) -> CachedTokens:
    """Returns the tokens of full pages, for another sequence."""
    full = cached.count // self.page_tokens
    pages = cached.pages[:full]
    for page in pages:
      self._ref_counts[cached.device][page] += 1
    return CachedTokens(cached.device, pages, full * self.page_tokens)

  def release(self, cached: CachedTokens) -> None:
    """Gives up all pages of a sequence or a prompt."""
    ref_counts = self._ref_counts[cached.device]
    for page in cached.pages:
      ref_counts[page] -= 1
      if not ref_counts[page]:
        heapq.heappush(self._free[cached.device], page)
    cached.pages = []
    cached.count = 0
