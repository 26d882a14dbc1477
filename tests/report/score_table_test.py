"""The table of `azr_jax.evaluate` has published scores below the model's."""

from azr_jax.report import references, score_table


def test_published_scores_of_the_same_benchmarks_follow():
  scores = {
    "math500/pass@1/unbiased": 0.5,
    "math500/pass@1/unbiased_stderr": 0.02,
    "gsm8k/pass@1/unbiased": 0.25,
  }
  published = references.read("orz_7b.csv")
  lines = score_table.show({"mine": scores}, (), published).splitlines()
  assert lines == [
    "| model | math500 | gsm8k |",
    "| --- | --- | --- |",
    "| mine | 50.0 +- 2.0 | 25.0 |",
    "| ORZ-7B (ORZ, table 4) | 81.4 (+31.4) |  |",
  ]
