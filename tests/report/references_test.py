"""References, such as a paper's numbers, next to the curves of a run."""

import csv
import json
import pathlib
import re

import pytest

from azr_jax.evals import registry
from azr_jax.report import command, page, reading, references
from azr_jax.report.scores import Benchmarks

SCORE = "evaluation/aime24/pass@1/unbiased"
HEAD = "metric,step,value,label\n"
ROOT = pathlib.Path(__file__).parents[2]
FILES = sorted(references.FOLDER.glob("*.csv"))


def write_run(folder, steps=30, score=0.2):
  folder.mkdir()
  lines = []
  for step in range(1, steps + 1):
    line = {"step": step, "time/step": 1.0, "tokens/orz/solve/mean": 9.0}
    line |= {
      "reward/azr/deduction/solve/mean": step / 100,
      "correct/azr/deduction/solve/mean": step / 100,
      "correct/azr/abduction/solve/mean": step / 90,
    }
    if step % 10 == 0:
      line[SCORE] = score
    lines.append(json.dumps(line))
  (folder / "metrics.jsonl").write_text("\n".join(lines))
  return folder


def write(path, *lines):
  path.write_text(HEAD + "\n".join(lines) + "\n")
  return str(path)


def build(folder, path):
  runs = reading.read_runs([str(folder)])
  beside = references.read(path)
  text = page.build(runs, Benchmarks(runs, {}), references=beside)
  return text, beside


def figure_of(text, caption):
  (found,) = re.findall(
    rf"<figcaption>{re.escape(caption)}<.*?</figure>", text, re.S
  )
  return found


def test_a_level_and_points_are_drawn_over_the_figure_of_their_metric(tmp_path):
  folder = write_run(tmp_path / "run")
  path = write(
    tmp_path / "paper.csv",
    f"{SCORE},,0.481,a paper",
    f'{SCORE},0,0.1,"base, then trained"',
    f'{SCORE},60,0.4,"base, then trained"',
  )
  text, beside = build(folder, path)
  found = figure_of(text, "pass@1: aime24")
  lines = dict(
    re.findall(
      r'<polyline class="[^"]+" data-label="([^"]+)" points="([^"]+)"', found
    )
  )
  # The axes extend to step 60 and to 0.6. The 360 x 210 frame has margins of
  # 48, 8, 24 and 22.
  assert 'data-last="60"' in found and 'data-high="0.6"' in found
  height = 24 + 164 * (1 - 0.481 / 0.6)
  assert lines["a paper"] == f"48.0,{height:.1f} 352.0,{height:.1f}"
  assert lines["base, then trained"] == "48.0,160.7 352.0,78.7"
  # Points have marks, levels do not. Both are dashed, also in the legend.
  assert len(re.findall(r'<circle class="s\d d1"', found)) == 2
  assert len(re.findall(r'<polyline class="s\d d1"', found)) == 2
  assert re.search(r'class="key s\d d1">a paper <b>0.481<', found)
  assert "base, then trained <b>0.1 \u2192 0.4<" in found
  assert not beside.missing() and "no figure for" not in text
  # Other figures are unchanged.
  assert 'data-last="30"' in figure_of(text, "Fraction of correct responses")


def test_several_runs_have_the_references_once(tmp_path):
  folders = [write_run(tmp_path / name) for name in ("one", "two")]
  runs = reading.read_runs([str(folder) for folder in folders])
  path = write(tmp_path / "paper.csv", f"{SCORE},,0.481,a paper")
  beside = references.read(path)
  text = page.build(runs, Benchmarks(runs, {}), references=beside)
  found = figure_of(text, "pass@1: aime24")
  for label in ("one", "two", "a paper"):
    assert found.count(f'data-label="{label}"') == 1
  colours = re.findall(r'<polyline class="(s\d[^"]*)"', found)
  assert len(colours) == len(set(colours)) == 3


def test_references_are_not_smoothed_as_runs_are(tmp_path):
  folder = write_run(tmp_path / "run")
  metric = "reward/azr/deduction/solve/mean"
  path = write(tmp_path / "paper.csv", f"{metric},,0.7,a", f"{metric},9,0.1,b")
  text, _ = build(folder, path)
  found = figure_of(text, "solve, reward: deduction")
  assert found.count('data-label="run"') == 2  # the values and their means
  assert found.count('data-label="a"') == found.count('data-label="b"') == 1
  assert 'data-high="0.8"' in found  # from the level, which is above the run


def test_a_reference_of_one_of_several_lines_names_its_line(tmp_path):
  folder = write_run(tmp_path / "run")
  metric = "correct/azr/deduction/solve/mean"
  text, _ = build(folder, write(tmp_path / "a.csv", f"{metric},,0.5,theirs"))
  found = figure_of(text, "Fraction of correct responses")
  assert 'data-label="theirs, deduction/solve"' in found


def test_a_constant_metric_is_drawn_beside_a_reference(tmp_path):
  folder = write_run(tmp_path / "run", score=0.0)
  path = write(tmp_path / "paper.csv", f"{SCORE},,0.481,a paper")
  assert "pass@1: aime24: 0<" in build(folder, "")[0]
  assert "a paper" in figure_of(build(folder, path)[0], "pass@1: aime24")


def test_final_scores_stand_in_the_table_of_benchmarks(tmp_path):
  folder = write_run(tmp_path / "run")
  names = (*registry.CODE, *registry.MATH)
  scores = {f"{name}/pass@1/unbiased": 0.25 for name in names}
  (tmp_path / "run_scores").mkdir()
  (tmp_path / "run_scores" / "results.json").write_text(
    json.dumps({"scores": scores})
  )
  lines = [f"evaluation/{name}/pass@1/unbiased,,0.5,theirs" for name in names]
  lines += [f"evaluation/{name}/pass@1/unbiased,0,0.1,start" for name in names]
  lines += [f"evaluation/{name}/pass@1/unbiased,9,0.3,start" for name in names]
  text, beside = build(folder, write(tmp_path / "paper.csv", *lines))
  for label, value in (("theirs", "50.0"), ("start", "30.0")):
    row = re.findall(rf"reference: {label}<.*?</tr>", text)[0]
    # Nine benchmarks and three averages.
    assert row.count(f"{value} \u00b1") + row.count(f">{value} %") == 12
  assert not beside.missing()


def test_what_the_page_does_not_draw_is_told_in_one_line(tmp_path, capsys):
  folder = write_run(tmp_path / "run")
  path = write(
    tmp_path / "paper.csv",
    f"{SCORE},,0.5,a",
    "evaluation/gpqa/pass@1/unbiased,,0.5,a",
    "reward/nobody,,0.5,a",
  )
  request = command.PageRequest(
    (str(folder),), str(tmp_path / "page.html"), reference=path
  )
  command.write(request)
  (line,) = [
    line
    for line in "".join(capsys.readouterr()).splitlines()
    if "no figure" in line
  ]
  words = "evaluation/gpqa/pass@1/unbiased, reward/nobody"
  assert line.endswith(f"no figure for the references of {words}")
  assert words in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
  "text, message",
  [
    ("", ":1: there is no column metric, step, value, label"),
    ("metric,step,value\na,1,2\n", ":1: there is no column label"),
    (HEAD, "expected a value below its columns"),
    (HEAD + "a,1,high,b\n", ":2: value 'high': expected a number"),
    (HEAD + "a,1,nan,b\n", ":2: value 'nan': expected a number"),
    (HEAD + "a,1,,b\n", ":2: value '': expected a number"),
    (HEAD + "a,,1,b\na,1.5,2,c\n", ":3: step '1.5': expected a whole number"),
    (HEAD + "a,-1,2,b\n", ":2: step '-1': expected a whole number"),
    (HEAD + ",1,2,b\n", ":2: there is no metric"),
    (HEAD + "a,1,2\n", ":2: there is no label"),
    (HEAD + "a,1,2,b\na,1,3,b\n", ":3: 'b' has a value of a already"),
    (HEAD + "a,1,2,b\na,,3,b\n", ":3: 'b' has a value of a already"),
    (HEAD + "a,,2,b\na,1,3,b\n", ":3: 'b' has a value of a already"),
    ("\x00\xff", "there is no column"),
    (HEAD + "a,1,2,b, c\n", ":2: there are values without a column: 'c'"),
    (HEAD + "a,1,1_0,b\n", ":2: value '1_0': expected a number"),
    (HEAD + 'a,1,2,"b\n', ":2: unexpected end of data"),
    (HEAD + 'a,1,2,"b"c\n', ":2: ',' expected after"),
    ("metric,step,value,label,label\n", ":1: there is no column label, or"),
  ],
)
def test_a_wrong_file_is_refused_by_its_line(tmp_path, text, message):
  path = tmp_path / "paper.csv"
  path.write_text(text, encoding="latin-1")
  with pytest.raises(ValueError, match="paper.csv") as error:
    references.read(str(path))
  assert message in str(error.value)


def test_a_wrong_file_is_refused_before_a_run_has_begun(tmp_path):
  missing = str(tmp_path / "no.csv")
  with pytest.raises(ValueError, match="no such file; expected a path, or one"):
    command.PageRequest(("run",), reference=missing).check()


def test_columns_may_stand_in_any_order_with_others(tmp_path):
  path = tmp_path / "paper.csv"
  path.write_bytes(
    b"\xef\xbb\xbflabel, value, note, metric, step\r\nb\xe2\x80\xa8, 1, x, a,,"
  )
  (one,) = references.read(str(path)).take("a")
  assert one == references.Reference("b", {None: 1.0})


def test_a_file_of_the_package_is_taken_by_its_name(tmp_path):
  folder = write_run(tmp_path / "run", steps=10)
  out = tmp_path / "page.html"
  command.write(
    command.PageRequest((str(folder),), str(out), reference="orz_32b.csv")
  )
  assert "ORZ-32B" in figure_of(out.read_text(), "pass@1: aime24")


def test_the_run_list_names_every_file():
  page_text = (ROOT / "docs" / "run_list.md").read_text("utf-8")
  named = set(re.findall(r"[\w.-]+\.csv", page_text)) - {"FILE.csv"}
  assert named == {path.name for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_references_of_papers_have_the_values_of_their_metrics(path):
  assert len(FILES) > 10
  beside = references.read(path.name)
  lines = path.read_text().splitlines()[1:]
  for metric in {line.partition(",")[0] for line in lines}:
    kind, name, *_, last = metric.split("/")
    if kind == "evaluation":
      assert name in registry.BENCHMARKS and last == "unbiased"
    else:
      assert kind in ("correct", "reward", "tokens")
      assert name in ("azr", "orz")
    highest = 1 if kind != "tokens" else 10_000
    for one in beside.take(metric):
      assert all(0 <= value <= highest for value in one.values.values())


def rows_of(name):
  """Returns the rows of a file in the package."""
  with (references.FOLDER / f"{name}.csv").open(encoding="utf-8") as file:
    return list(csv.DictReader(file))


MATHEMATICS = "aime24 aime25 amc23 math500 minerva olympiadbench".split()
CODE = "humaneval_plus mbpp_plus livecodebench".split()
CHOICES = "aime24 aime25 math500 gpqa".split()


@pytest.mark.parametrize(
  "name, step, benchmarks",
  [
    ("orz_32b", 1200, CHOICES),
    ("orz_7b", 650, CHOICES),
    ("orz_1.5b", 150, CHOICES),
    ("orz_0.5b", 200, CHOICES),
    ("azr_qwen2.5-coder-7b", 340, MATHEMATICS + CODE),
    ("azr_qwen2.5-coder-14b", 300, MATHEMATICS + CODE),
    ("azr_qwen2.5-7b", 130, ["aime24", "aime25", "math500", *CODE]),
    ("azr_qwen2.5-14b", 370, MATHEMATICS),
    ("azr_qwen2.5-14b", 300, CODE),
  ],
)
def test_curves_pass_through_the_numbers_of_the_tables(name, step, benchmarks):
  """The figures and the tables were transcribed independently."""
  final = {row["metric"]: row for row in rows_of(name) if not row["step"]}
  curve = {
    row["metric"]: row
    for row in rows_of(f"{name}_training")
    if row["step"] == str(step)
  }
  for benchmark in benchmarks:
    metric = f"evaluation/{benchmark}/pass@1/unbiased"
    apart = float(final[metric]["value"]) - float(curve[metric]["value"])
    # A tenth of a point for the table's rounding, another for the figure's.
    assert abs(apart) < 0.0021, benchmark


@pytest.mark.parametrize(
  "path",
  [p for p in FILES if p.match("azr*_training.csv")],
  ids=lambda path: path.name,
)
def test_greedy_scores_of_few_items_are_multiples_of_one(path):
  items = {"aime24": 30, "aime25": 30, "amc23": 40}
  found = []
  for row in rows_of(path.stem):
    number = items.get(row["metric"].split("/")[1])
    if number is not None:
      right = float(row["value"]) * number
      found.append(abs(right - round(right)) / number)
  assert len(found) > 60 and max(found) < 0.0006
