"""Reads gcloud command lines with the parser of a Google Cloud SDK.

  CLOUDSDK_CONFIG=EMPTY_FOLDER SDK/PYTHON -S sdk_parser.py SDK/lib < REQUESTS

The program must be run by the SDK's own Python. It reads a JSON list per line,
the words after `gcloud`, and answers each by a line with a list: the parser's
exit status (0: it accepts them), what it prints, and the error. No command is
executed, and no network is needed. `--help` prints the help, as a parser does.
The SDK builds the parsers of its commands as they are asked for, so the first
answer takes a second and each further one milliseconds.
"""

import json
import os
import sys
import tempfile


def main() -> None:
  """Answers until the input ends."""
  library = sys.argv[1]
  sys.path[:0] = [library, os.path.join(library, "third_party")]
  answers = os.fdopen(os.dup(1), "w")
  # The SDK keeps the streams that it was started with.
  said = [tempfile.TemporaryFile("w+") for _ in range(2)]
  for number, file in enumerate(said, 1):
    os.dup2(file.fileno(), number)
  # pyrefly: ignore[missing-import] - the SDK holds it.
  from googlecloudsdk import gcloud_main

  parser = gcloud_main.CreateCLI([]).top_element._parser
  for line in sys.stdin:
    for file in said:
      file.seek(0)
      file.truncate()
    code = parse(parser, json.loads(line))
    sys.stdout.flush()
    sys.stderr.flush()
    for file in said:
      file.seek(0)
    answers.write(json.dumps([code, *(file.read() for file in said)]) + "\n")
    answers.flush()


def parse(parser, words):
  """Returns the exit status of the parser; what it says is printed."""
  try:
    parsed = parser.parse_args(words)
    if parsed.CONCEPT_ARGS is not None:
      parsed.CONCEPT_ARGS.ParseConcepts()
  except SystemExit as error:
    return error.code or 0
  except Exception as error:  # noqa: BLE001 - gcloud prints any of a flag.
    sys.stderr.write(f"ERROR: (gcloud) {error}\n")
    return 2
  return 0


if __name__ == "__main__":
  main()
