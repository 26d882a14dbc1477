"""Writes the table of docs/metrics.md from what the code says of its metrics.

python -m tests.metrics_page
"""

import pathlib
from collections.abc import Mapping

from azr_jax.run import metrics

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "metrics.md"
_BEGIN = "<!-- written by tests/metrics_page.py -->\n"
_END = "<!-- end -->\n"


def healthy() -> Mapping[str, str]:
  """Returns {metric family: what a healthy value looks like}."""
  return metrics.HEALTHY


def with_table(text: str) -> str:
  """Returns the page's text with the table as the code has it now."""
  before, _, rest = text.partition(_BEGIN)
  _, _, after = rest.partition(_END)
  rows = [
    f"| `{family}/...` | {words} |" for family, words in healthy().items()
  ]
  table = ["| metrics | what a healthy run shows |", "| --- | --- |", *rows]
  return before + _BEGIN + "\n".join(table) + "\n" + _END + after


if __name__ == "__main__":
  PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
