"""Compares this grader with math-verify alone on labelled pairs.

  python -m azr_jax.grading.mathematics tests/grading/mathematics/pairs.tsv

The file has four tab-separated columns: kind, label (`right` for a correct
answer, `wrong` for an incorrect one), reference, answer. The printed table
counts the pairs of each kind on which a grader disagrees with the label.
`--show` also prints the pairs that this grader gets wrong.
"""

from azr_jax.cli import errors
from azr_jax.executor import __main__ as executor_command
from azr_jax.grading.mathematics import pairs


def main() -> None:
  """Parses the flags, grades the pairs and prints the table."""
  parser = errors.Parser(__doc__, "azr_jax.grading.mathematics")
  parser.add_argument("file", help="TSV file of labelled pairs")
  parser.add_argument(
    "--show",
    action="store_true",
    help="also print the pairs that this grader gets wrong",
  )
  executor_command.add_flags(parser)
  parser.set_defaults(timeout_s=20.0, memory_mb=2048)
  flags = parser.parse_args()
  try:
    labelled = pairs.read(flags.file)
  except (pairs.BadPairsError, OSError, UnicodeDecodeError) as error:
    raise errors.UsageError(str(error)) from None
  with executor_command.make_executor(parser, flags) as executor:
    pending = [pairs.submit(executor, pair) for pair in labelled]
    grades = [future.result() for future in pending]
  print("\n".join(pairs.table(grades)))
  if flags.show:
    for grade in pairs.mistakes(grades):
      state = "accepted" if grade.ours else "refused"
      pair = grade.pair
      print(f"{state}: {pair.kind}: {pair.reference}  |  {pair.answer}")


def run() -> None:
  """Runs the command."""
  errors.guard(main)


if __name__ == "__main__":
  run()
