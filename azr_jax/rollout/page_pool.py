"""The page tables on the host: free, shared, and known pages.

A known page is found by its own tokens after those of the page before it, so a
path from the root of a tree is the beginning of a prompt. Tokens are compared,
not only their hashes. Pages of equal tokens are not looked for elsewhere,
because keys and values depend on all tokens before them (as in SGLang's
RadixAttention, arXiv:2312.07104).
"""

import dataclasses
import heapq
from collections.abc import Iterator, Sequence

Tokens = tuple[int, ...]


@dataclasses.dataclass(eq=False)
class _Node:
  """A page that is known by its tokens; the root has none.

  Attributes:
    page: its index among the pages of the device.
    tokens: those that it holds.
    parent: the page before it; None for the root.
    children: the pages after it, by their tokens.
  """

  page: int
  tokens: Tokens
  parent: "_Node | None"
  children: "dict[Tokens, _Node]" = dataclasses.field(default_factory=dict)


class PrefixTree:
  """The known pages of a device."""

  def __init__(self, page_tokens: int):
    """Knows no page yet.

    Args:
      page_tokens: C, tokens of a page.
    """
    self._page_tokens = page_tokens
    self._root = _Node(-1, (), None)
    self._nodes: dict[int, _Node] = {}

  def __contains__(self, page: int) -> bool:
    return page in self._nodes

  def find(self, token_ids: Sequence[int]) -> list[int]:
    """Returns the pages of the longest known beginning, in order."""
    node, pages = self._root, []
    for tokens in self._full_pages(token_ids):
      following = node.children.get(tokens)
      if following is None:
        break
      node = following
      pages.append(node.page)
    return pages

  def add(self, token_ids: Sequence[int], pages: Sequence[int]) -> None:
    """Makes pages known.

    Args:
      token_ids: the tokens from the first page on.
      pages: that hold them, the known ones of `find` first.
    """
    node = self._root
    for tokens, page in zip(self._full_pages(token_ids), pages, strict=False):
      following = node.children.get(tokens)
      if following is None:
        following = _Node(page, tokens, node)
        node.children[tokens] = self._nodes[page] = following
      assert following.page == page
      node = following

  def remove(self, page: int) -> None:
    """Forgets a page that no known page comes after."""
    node = self._nodes.pop(page)
    assert node.parent is not None and not node.children
    del node.parent.children[node.tokens]

  def _full_pages(self, token_ids: Sequence[int]) -> Iterator[Tokens]:
    C = self._page_tokens
    for start in range(0, len(token_ids) - C + 1, C):
      yield tuple(token_ids[start : start + C])


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

  A page may be shared. It is free when the last of those that share it has
  released it, but if its tokens are known, they stay in it until its room is
  needed: a prompt that begins with them shares it again. Free pages without
  known tokens are taken first, the smallest index before the others, then the
  known ones that were released longest ago. So which pages are taken follows
  from the calls alone.
  """

  def __init__(
    self,
    devices: int,
    num_pages: int,
    page_tokens: int,
    keeps_prefixes: bool = True,
  ):
    """Makes free pages.

    Args:
      devices: devices that rows are split over.
      num_pages: of each of them.
      page_tokens: C, tokens of a page.
      keeps_prefixes: whether pages are known by their tokens.
    """
    self.page_tokens = page_tokens
    self.keeps_prefixes = keeps_prefixes
    self._free = [list(range(num_pages)) for _ in range(devices)]
    self._ref_counts = [[0] * num_pages for _ in range(devices)]
    self._trees = [PrefixTree(page_tokens) for _ in range(devices)]
    # Free pages with known tokens, the one that was released first in front. A
    # page is released before the one that it follows, so it is taken first.
    self._kept: list[dict[int, None]] = [{} for _ in range(devices)]

  def num_free(self, device: int) -> int:
    """Returns how many pages of a device no sequence uses."""
    return len(self._free[device]) + len(self._kept[device])

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
    if missing > 0 and missing + reserve > self.num_free(cached.device):
      return False
    for _ in range(missing):
      page = self._take_free(cached.device)
      self._ref_counts[cached.device][page] = 1
      cached.pages.append(page)
    return True

  def _take_free(self, device: int) -> int:
    """Returns a free page, whose tokens are forgotten."""
    if self._free[device]:
      return heapq.heappop(self._free[device])
    kept = self._kept[device]
    page = next(iter(kept))
    del kept[page]
    self._trees[device].remove(page)
    return page

  def share(self, cached: CachedTokens) -> CachedTokens:
    """Returns the tokens of full pages, for another sequence."""
    full = cached.count // self.page_tokens
    pages = cached.pages[:full]
    for page in pages:
      self._ref_counts[cached.device][page] += 1
    return CachedTokens(cached.device, pages, full * self.page_tokens)

  def remember(self, cached: CachedTokens, token_ids: Sequence[int]) -> None:
    """Makes the full pages of cached tokens known, for prompts to come.

    Where other pages are known for the same tokens, it takes these and frees
    its own. So whoever holds a known page holds the known pages before it.

    Args:
      cached: its full pages are not written any more.
      token_ids: at least as many tokens as are cached.
    """
    if not self.keeps_prefixes:
      return
    device = cached.device
    full = cached.count // self.page_tokens
    tokens = token_ids[: full * self.page_tokens]
    known = self.share_known(device, tokens)
    number = len(known.pages)
    own = CachedTokens(device, cached.pages[:number])
    cached.pages[:number] = known.pages
    self.release(own)
    self._trees[device].add(tokens, cached.pages)

  def num_known(self, device: int, token_ids: Sequence[int]) -> int:
    """Returns how many first tokens lie in known pages of a device."""
    return len(self._trees[device].find(token_ids)) * self.page_tokens

  def share_known(self, device: int, token_ids: Sequence[int]) -> CachedTokens:
    """Returns the known pages of the first tokens, for another sequence.

    Args:
      device: of the pages.
      token_ids: all that may be taken from the cache.
    """
    pages = self._trees[device].find(token_ids)
    for page in pages:
      self._kept[device].pop(page, None)
      self._ref_counts[device][page] += 1
    return CachedTokens(device, pages, len(pages) * self.page_tokens)

  def release(self, cached: CachedTokens) -> None:
    """Gives up all pages of a sequence or a prompt."""
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
