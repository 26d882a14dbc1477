"""Grades labelled pairs by this grader, beside math-verify alone.

  python -m azr_jax.grading.mathematics tests/grading/mathematics/pairs.tsv

The file has four columns with tabs between them: kind, label (`right` for a
correct answer, `wrong` for an incorrect one), reference, answer. The table
counts, for each kind, the pairs on which a grader disagrees with the label.
`--show` adds those of this grader.
"""

from azr_jax.cli import errors
from azr_jax.executor import __main__ as executor_command
from azr_jax.grading.mathematics import pairs


def main() -> None:
  """Reads the flags and the pairs, and prints the table."""
  parser = errors.Parser(__doc__, "azr_jax.grading.mathematics")
  parser.add_argument("file", help="labelled pairs, as TSV")
  parser.add_argument(
    "--show", action="store_true", help="print the pairs graded incorrectly"
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
