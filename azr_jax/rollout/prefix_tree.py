"""Which pages hold which tokens: a tree of full pages, of one device.

A page is found by its own tokens after those of the page before it, so a path
from the root is the beginning of a prompt. Tokens are compared, not only their
hashes. Pages of equal tokens are not looked for elsewhere, because keys and
values depend on all tokens before them (as in SGLang's RadixAttention,
arXiv:2312.07104).
"""

import dataclasses
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
