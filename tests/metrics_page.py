"""Writes the table of docs/metrics.md from the metric docs in the code.

python -m tests.metrics_page
"""

import pathlib
from collections.abc import Iterator

from azr_jax.run import metrics
from azr_jax.systems import registry

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "metrics.md"
_BEGIN = "<!-- written by tests/metrics_page.py -->\n"
_END = "<!-- end -->\n"


def families() -> Iterator[tuple[str, str, str]]:
  """Yields metric family, its system, and its description."""
  for family, words in metrics.HEALTHY.items():
    yield family, "all", words
  for name in registry.SYSTEMS:
    for family, words in registry.about(name).metrics.items():
      yield family, f"`{name}`", words


def with_table(text: str) -> str:
  """Returns the page's text with an updated table."""
  before, _, rest = text.partition(_BEGIN)
  _, _, after = rest.partition(_END)
  rows = [
    f"| `{family}/...` | {system} | {words} |"
    for family, system, words in families()
  ]
  header = "| metrics | system | what a healthy run shows |"
  table = [header, "| --- | --- | --- |", *rows]
  return before + _BEGIN + "\n".join(table) + "\n" + _END + after


if __name__ == "__main__":
  PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
