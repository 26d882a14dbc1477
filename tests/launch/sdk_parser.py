"""Reads gcloud command lines with the parser of a Google Cloud SDK.

  CLOUDSDK_CONFIG=EMPTY_FOLDER SDK/PYTHON -S sdk_parser.py SDK/lib < REQUESTS

The program must run in the SDK's own Python. It reads one JSON list per line,
the words after `gcloud`, and answers each with a JSON list: the parser's exit
status (0 if it accepts them), its output, and its error. Nothing is executed,
and no network is needed. `--help` prints the help, as usual. The SDK builds
parsers on demand, so the first answer takes a second and later ones
milliseconds.
"""

import json
import os
import sys
import tempfile


def main() -> None:
  """Answers requests until the input ends."""
  library = sys.argv[1]
  sys.path[:0] = [library, os.path.join(library, "third_party")]
  answers = os.fdopen(os.dup(1), "w")
  # The SDK keeps the streams it was started with.
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
  """Returns the parser's exit status. Its output is printed."""
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
