"""The host's page tables, with a prefix cache.

Pages are free, shared, or known. A *known* page can be found by its tokens: the
prefix tree holds it as a child of the page with the tokens before it. A path
from the root thus spells a prefix of a prompt. Lookups compare the tokens, not
just their hashes. A page matches only after the same prefix, because keys and
values depend on all earlier tokens (as in SGLang's RadixAttention,
arXiv:2312.07104), and after the same adapter, if there are several.
"""

import dataclasses
import heapq
from collections.abc import Iterable, Sequence

from azr_jax.rollout.adapter_ref import BASE, AdapterRef


class PageTokens:
  """The tokens in a full page, hashed once for the trees of all devices.

  Tokens that different adapters have run are not equal.
  """

  __slots__ = ("_hash", "_key")

  def __init__(self, tokens: Sequence[int], adapter: AdapterRef = BASE):
    self._key = tuple(tokens), adapter
    self._hash = hash(self._key)

  def __hash__(self) -> int:
    return self._hash

  def __eq__(self, other: object) -> bool:
    return isinstance(other, PageTokens) and self._key == other._key


@dataclasses.dataclass(eq=False)
class _Node:
  """A known page in the prefix tree; the root has no page.

  Attributes:
    page: index of the page on its device.
    tokens: the tokens in the page.
    parent: the node of the page before it; None for the root.
    children: the nodes of the pages after it, by their tokens.
  """

  page: int
  tokens: PageTokens
  parent: "_Node | None"
  children: "dict[PageTokens, _Node]" = dataclasses.field(default_factory=dict)


class PrefixTree:
  """The prefix tree of a device's known pages."""

  def __init__(self):
    self._root = _Node(-1, PageTokens(()), None)
    self._nodes: dict[int, _Node] = {}

  def __contains__(self, page: int) -> bool:
    return page in self._nodes

  def find(self, prefix: Iterable[PageTokens]) -> list[int]:
    """Returns the pages of the longest known prefix, in order."""
    node, pages = self._root, []
    for tokens in prefix:
      following = node.children.get(tokens)
      if following is None:
        break
      node = following
      pages.append(node.page)
    return pages

  def add(self, prefix: Iterable[PageTokens], pages: Sequence[int]) -> None:
    """Adds pages to the tree.

    Args:
      prefix: the tokens of the first pages.
      pages: the pages that hold these tokens; the ones that `find` returns come
        first.
    """
    node = self._root
    for tokens, page in zip(prefix, pages, strict=False):
      following = node.children.get(tokens)
      if following is None:
        following = _Node(page, tokens, node)
        node.children[tokens] = self._nodes[page] = following
      assert following.page == page
      node = following

  def remove(self, page: int) -> None:
    """Removes a page, which must be a leaf of the tree."""
    node = self._nodes.pop(page)
    assert node.parent is not None and not node.children
    del node.parent.children[node.tokens]


@dataclasses.dataclass(eq=False)
class CachedTokens:
  """The cached prefix of a prompt or a sequence.

  Attributes:
    device: the device of the pages, as an index of the row split.
    pages: indices of the pages on that device; the last ones may be empty.
    count: number of cached tokens.
  """

  device: int
  pages: list[int] = dataclasses.field(default_factory=list)
  count: int = 0


class PagePool:
  """The page pool of all devices.

  Pages are reference-counted, and a page without references is free. A known
  page keeps its tokens until its space is needed, so a prompt with the same
  prefix can share it again. Unknown free pages are allocated first, by smallest
  index, then known ones in the order of their release. Allocation is
  deterministic: it depends only on the sequence of calls.
  """

  def __init__(
    self,
    devices: int,
    num_pages: int,
    page_tokens: int,
    keeps_prefixes: bool = True,
  ):
    """Creates free pages.

    Args:
      devices: number of devices that rows are split over.
      num_pages: pages per device.
      page_tokens: C, tokens per page.
      keeps_prefixes: whether full pages become known; False turns the prefix
        cache off.
    """
    self.page_tokens = page_tokens
    self.keeps_prefixes = keeps_prefixes
    self._free = [list(range(num_pages)) for _ in range(devices)]
    self._ref_counts = [[0] * num_pages for _ in range(devices)]
    self._trees = [PrefixTree() for _ in range(devices)]
    # Known free pages, in the order of their release. A page is released before
    # its parent, so leaves of the tree are taken first.
    self._kept: list[dict[int, None]] = [{} for _ in range(devices)]

  def num_free(self, device: int) -> int:
    """Returns the number of pages of a device that no sequence uses."""
    return len(self._free[device]) + len(self._kept[device])

  def pages_for(self, tokens: int) -> int:
    """Returns the number of pages that `tokens` tokens fill."""
    return -(-tokens // self.page_tokens)

  def missing(self, cached: CachedTokens, tokens: int) -> int:
    """Returns how many more pages `tokens` tokens need; negative if fewer."""
    return self.pages_for(tokens) - len(cached.pages)

  def allocate(
    self, cached: CachedTokens, tokens: int, reserve: int = 0
  ) -> bool:
    """Allocates pages until there is room for `tokens` tokens in total.

    Args:
      cached: the cache that gets the pages.
      tokens: total number of tokens, cached ones included.
      reserve: number of pages that must stay free if any page is allocated.

    Returns:
      Whether there were enough free pages; if not, none is allocated.
    """
    missing = self.missing(cached, tokens)
    if missing > 0 and missing + reserve > self.num_free(cached.device):
      return False
    for _ in range(missing):
      page = self._take_free(cached.device)
      self._ref_counts[cached.device][page] = 1
      cached.pages.append(page)
    return True

  def _take_free(self, device: int) -> int:
    """Returns a free page; its tokens are no longer known."""
    if self._free[device]:
      return heapq.heappop(self._free[device])
    kept = self._kept[device]
    page = next(iter(kept))
    del kept[page]
    self._trees[device].remove(page)
    return page

  def share(self, cached: CachedTokens) -> CachedTokens:
    """Returns the cache's full pages, shared with another sequence."""
    full = cached.count // self.page_tokens
    pages = cached.pages[:full]
    for page in pages:
      self._ref_counts[cached.device][page] += 1
    return CachedTokens(cached.device, pages, full * self.page_tokens)

  def remember(
    self,
    cached: CachedTokens,
    token_ids: Sequence[int],
    adapter: AdapterRef = BASE,
  ) -> None:
    """Makes a cache's full pages known, so that later prompts can share them.

    If other pages are already known for the same tokens, the cache switches to
    those and releases its own. A holder of a known page therefore holds all
    known pages before it.

    Args:
      cached: a cache whose full pages are no longer written.
      token_ids: at least as many tokens as are cached.
      adapter: the adapter that has run them.
    """
    if not self.keeps_prefixes:
      return
    device = cached.device
    prefix = self._full_pages(token_ids[: cached.count], adapter)
    known = self._share_known(device, prefix)
    number = len(known.pages)
    own = CachedTokens(device, cached.pages[:number])
    cached.pages[:number] = known.pages
    self.release(own)
    self._trees[device].add(prefix, cached.pages)

  def num_known(
    self,
    devices: Iterable[int],
    token_ids: Sequence[int],
    adapter: AdapterRef = BASE,
  ) -> list[int]:
    """Returns how many leading tokens are in known pages of each device."""
    prefix = self._full_pages(token_ids, adapter)
    return [
      len(self._trees[device].find(prefix)) * self.page_tokens
      for device in devices
    ]

  def share_known(
    self,
    device: int,
    token_ids: Sequence[int],
    adapter: AdapterRef = BASE,
  ) -> CachedTokens:
    """Returns the known pages of a prefix, shared with another sequence.

    Args:
      device: the device to search.
      token_ids: the tokens to look up.
      adapter: the adapter that the sequence is sampled with.
    """
    return self._share_known(device, self._full_pages(token_ids, adapter))

  def _share_known(
    self, device: int, prefix: Iterable[PageTokens]
  ) -> CachedTokens:
    pages = self._trees[device].find(prefix)
    for page in pages:
      self._kept[device].pop(page, None)
      self._ref_counts[device][page] += 1
    return CachedTokens(device, pages, len(pages) * self.page_tokens)

  def _full_pages(
    self, token_ids: Sequence[int], adapter: AdapterRef
  ) -> list[PageTokens]:
    C = self.page_tokens
    starts = range(0, len(token_ids) - C + 1, C)
    return [PageTokens(token_ids[s : s + C], adapter) for s in starts]

  def release(self, cached: CachedTokens) -> None:
    """Releases all pages of a sequence or a prompt."""
    ref_counts = self._ref_counts[cached.device]
    for page in reversed(cached.pages):
      ref_counts[page] -= 1
      if ref_counts[page]:
        continue
      if page in self._trees[cached.device]:
        self._kept[cached.device][page] = None
      else:
        heapq.heappush(self._free[cached.device], page)
    cached.pages = []
    cached.count = 0
