"""Lists the benchmarks, their groups and where their data come from.

python -m azr_jax.evals
"""

from azr_jax.cli import errors
from azr_jax.evals import registry


def listing() -> str:
  """Returns a Markdown table of all benchmarks."""
  lines = ["| benchmark | groups | data |", "| --- | --- | --- |"]
  for name, benchmark in registry.BENCHMARKS.items():
    groups = [key for key, names in registry.GROUPS.items() if name in names]
    data = benchmark.source or "in the package"
    if name in registry.NEED_DATA:
      data = f"yours: --data={name}=PATH"
    lines.append(f"| {name} | {', '.join(groups)} | {data} |")
  return "\n".join(lines)


def main() -> None:
  """Prints the table."""
  errors.Parser(__doc__, "azr_jax.evals").parse_args()
  print(listing())
  print(
    "\nhf:OWNER/NAME/CONFIG:SPLIT is a data set of Hugging Face. A file of the "
    "same records\ncan replace it: --data=NAME=PATH."
  )


if __name__ == "__main__":
  errors.guard(main)
