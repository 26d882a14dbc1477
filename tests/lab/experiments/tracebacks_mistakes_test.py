"""By how much answers to sums are off."""

import pytest

from experiments.tracebacks import mistakes


@pytest.mark.parametrize(
  ("question", "answer", "kind"),
  [
    ("14 + 58", " 72", "right"),
    ("14 + 58", "72\n", "right"),
    ("14 + 58", "71", "units"),
    ("14 + 58", "62", "tens"),
    ("14 + 58", "172", "tens"),
    ("14 + 58", "61", "both"),
    ("14 + 58", "82.", "none"),
    ("14 + 58", "", "none"),
    ("514 + 158", "672", "right"),
  ],
)
def test_kinds_of_answers(question, answer, kind):
  assert mistakes.kind(question, answer) == kind
