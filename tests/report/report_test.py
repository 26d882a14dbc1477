"""The report page: its data, its charts, and how a browser shows it."""

import base64
import hashlib
import html.parser
import json
import re
import shutil
import subprocess
import sys

import pytest
from typed import present

from azr_jax.report import (
  axes,
  changes,
  charts,
  command,
  page,
  reading,
  sections,
)
from azr_jax.report.changes import Estimate
from azr_jax.report.charts import Line
from azr_jax.report.scores import Benchmarks

CHROMIUM = next(
  filter(
    None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
  ),
  None,
)
HOSTILE = "</script><script>document.title='broken'</script><b onclick=x>&amp;"


def write_run(folder, steps=30, rate=0.01, system="azr"):
  """Writes a run folder as `azr_jax.train` does, and its scores folder."""
  (folder / "samples").mkdir(parents=True)
  (folder / "flagged").mkdir()
  config = {
    "system": system,
    "model": {"source": "embedded:azr-tiny"},
    "train": {"steps": steps},
    "optimizer": {"learning_rate": rate},
  }
  (folder / "config.json").write_text(json.dumps(config))
  lines = []
  for step in range(1, steps + 1):
    line = {"step": step, "time/step": 2.0, "learner/entropy": 1 / step}
    line |= {f"time/{name}": 0.4 for name in sections.PHASES}
    for role in ("propose", "solve"):
      for kind in ("deduction", "abduction", "induction"):
        line[f"reward/azr/{kind}/{role}/mean"] = step * rate
    for right in range(5):
      line[f"learnability/azr/deduction/solved_{right}_of_4"] = right * step
    if step % 10 == 0:
      line["evaluation/cruxeval_o/pass@1/unbiased"] = step / 100
      line["proposals/azr/deduction/rejected_error"] = 3.0
    line["executor/ok"] = 10.0
    line["new_family/of/somebody"] = float("nan") if step % 2 else 1.0
    lines.append(json.dumps(line))
    for name, more in (("samples", {}), ("flagged", {"rules": ["escape"]})):
      record = {
        "group": ["deduction", "solve"],
        "prompt": HOSTILE,
        "completion": f"number {step} " + "x" * 30_000,
        "finish_reason": "stop",
        "reward": 1.0 if step % 2 else -0.5,
      }
      path = folder / name / f"{step:06d}.jsonl"
      path.write_text(json.dumps(record | more) + "\n")
  (folder / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 31, "ti')
  scores = folder.with_name(f"{folder.name}_scores")
  write_scores(scores, 0.5 + rate)
  return folder


def write_scores(folder, value):
  folder.mkdir()
  scores = {
    "humaneval_plus/pass@1/unbiased": value,
    "humaneval_plus/pass@1/unbiased_stderr": 0.02,
    "humaneval_plus/items": 164,
  }
  (folder / "results.json").write_text(json.dumps({"scores": scores}))


def test_a_run_is_read_up_to_its_last_whole_line(tmp_path):
  (run,) = reading.read_runs([str(write_run(tmp_path / "one"))])
  assert run.steps == list(range(1, 31))  # without the partial last line
  assert run.config["optimizer.learning_rate"] == 0.01
  assert [sample["step"] for sample in run.samples] == run.steps
  assert run.scores == {"humaneval_plus": (0.51, 0.02)}
  rewards = run.series("reward/azr/(.+)/(solve)/mean")
  assert list(rewards) == ["abduction solve", "deduction solve"] + [
    "induction solve"
  ]
  assert run.values["evaluation/cruxeval_o/pass@1/unbiased"][:10] == (
    [None] * 9 + [0.1]
  )


def test_runs_are_named_by_the_ends_of_their_paths_that_differ(tmp_path):
  paths = [str(write_run(tmp_path / name / "run")) for name in ("a", "b")]
  assert [r.name for r in reading.read_runs(paths)] == ["a/run", "b/run"]


def test_a_folder_without_metrics_is_refused(tmp_path):
  with pytest.raises(ValueError, match="there is no such file"):
    reading.read_runs([str(tmp_path)])


class Elements(html.parser.HTMLParser):
  """Collects elements, and fails if they are not closed in order."""

  VOID = ("meta", "input", "line", "rect", "polyline", "polygon", "circle")
  VOID += ("br",)

  def __init__(self, text):
    super().__init__()
    self.open, self.elements = [], []
    self.feed(text)
    assert not self.open

  def handle_starttag(self, tag, attrs):
    self.elements.append((tag, dict(attrs)))
    if tag not in self.VOID:
      self.open.append(tag)

  def handle_startendtag(self, tag, attrs):
    self.elements.append((tag, dict(attrs)))

  def handle_endtag(self, tag):
    if tag not in self.VOID:
      assert self.open.pop() == tag

  def count(self, tag):
    return sum(name == tag for name, _ in self.elements)


@pytest.fixture(name="two")
def write_two(tmp_path):
  paths = [write_run(tmp_path / "one"), write_run(tmp_path / "two", 20, 0.02)]
  return reading.read_runs([str(path) for path in paths])


def build(runs, base=None, **options):
  return page.build(runs, Benchmarks(runs, base or {}), **options)


def captions(text):
  return re.findall(r"<figcaption>([^<]+)", text)


def test_the_page_is_valid_and_refers_to_no_other_file(two):
  text = build(two, {"humaneval_plus": (0.4, 0.0)})
  page_elements = Elements(text)
  for tag, attributes in page_elements.elements:
    assert tag not in ("link", "img", "iframe")
    assert "src" not in attributes
    assert attributes.get("href", "#").startswith("#")
  assert "http" not in text.replace("http-equiv", "")
  assert text.count("<polygon") == 2 * len(sections.PHASES)
  # Differences to the base model.
  assert "+11.0 points" in text and "+12.0 points" in text
  # The metric is 1 in every step that has it.
  assert "new_family/of: somebody: 1<" in text
  assert "2 differences of settings" in text


def test_the_page_opens_with_a_curve_and_ends_with_the_facts(two):
  text = build(two)
  first = present(re.search(r"<figure>.*?</figure>", text, re.DOTALL))
  assert "Held-out problems solved: cruxeval_o" in first[0]
  assert first.start() < text.index("<table")
  assert text.index('<section id="runs">') > text.rindex('class="grid"')


def test_several_runs_are_drawn_over_each_other(two):
  text = build(two)
  assert captions(text).count("solve, reward: deduction") == 1
  found = re.findall(
    r"<figcaption>solve, reward: deduction<.*?</figure>", text, re.S
  )[0]
  labels = set(re.findall(r'data-label="([^"]+)"', found))
  assert labels == {"one", "two"}
  # 0.4 is the second run's maximum. The last step is the first run's.
  assert 'data-high="0.4"' in found and 'data-last="30"' in found
  assert ">reward</text>" in found  # the unit of the axis


def test_one_run_has_a_figure_per_type_and_role(two):
  found = captions(build(two[:1]))
  for role in ("propose", "solve"):
    for kind in ("deduction", "abduction", "induction"):
      assert found.count(f"{role}, reward: {kind}") == 1
  assert "As figures 15 to 17 of AZR" in build(two[:1])


def test_the_first_and_last_steps_are_compared_with_their_errors():
  values = [1.0, 3.0, 3.0, 1.0, 9.0, 7.0, 7.0, 9.0]
  change = present(changes.of_ends(values, 4))
  assert (change.first.value, change.last.value) == (2.0, 8.0)
  # The variance is 4/3 over 4 steps at both ends.
  assert change.first.stderr == pytest.approx(3**-0.5)
  assert change.difference.value == 6.0
  assert change.difference.stderr == pytest.approx((2 / 3) ** 0.5)
  assert change.difference.direction() == "up"
  # Three steps at each end give no error, however far apart the ends are.
  few = present(changes.of_ends([1.0, 1.1, 1.2, 9.0, 9.1, 9.2], 3))
  assert few.difference.stderr is None
  assert few.difference.direction() == ""
  two_steps = present(changes.of_ends([1.0, 2.0, 1.5, 1.6], 2))
  assert two_steps.difference.direction() == ""
  assert changes.of_ends([1.0, None, 2.0], 2) is None
  assert [changes.window(n) for n in (2, 9, 40)] == [0, 3, 10]


def test_a_mean_of_changes_has_the_error_of_independent_ones():
  one = changes.Change(Estimate(1.0, 0.3), Estimate(2.0, 0.3))
  other = changes.Change(Estimate(3.0, 0.4), Estimate(3.0, 0.4))
  mean = present(changes.mean_change([one, other]))
  assert mean.difference.value == 0.5
  # The mean of two has half the hypotenuse. A difference combines both ends.
  assert mean.first.stderr == pytest.approx(0.25)
  assert mean.difference.stderr == pytest.approx(0.25 * 2**0.5)
  unsure = changes.Change(Estimate(1.0), Estimate(2.0, 0.3))
  mean = present(changes.mean_change([one, unsure]))
  assert mean.difference.stderr is None
  assert changes.mean_change([]) is None


@pytest.mark.parametrize(
  "slope, words",
  [(0.01, "rose"), (-0.01, "fell"), (0.0, "not change significantly")],
)
def test_the_headline_says_what_the_steps_show(tmp_path, slope, words):
  folder = write_run(tmp_path / "one", rate=0.0)
  lines = [
    json.dumps(
      {
        "step": step,
        "time/step": 1.0,
        "correct/azr/deduction/solve/mean": 0.5 + slope * step + step % 3 / 9,
      }
    )
    for step in range(1, 31)
  ]
  (folder / "metrics.jsonl").write_text("\n".join(lines))
  text = build(reading.read_runs([str(folder)]))
  (headline,) = re.findall(r'<p class="headline">(.*?)</p>', text)
  assert words in headline
  others = {"rose", "fell", "not change significantly"} - {words}
  assert not any(other in headline for other in others)
  # Hints describe a healthy run, so they are left out.
  shown = re.sub(r'<details class="hint">.*?</details>', "", text)
  assert "rises" not in shown


def test_scores_during_training_are_the_headline(tmp_path):
  folder = write_run(tmp_path / "one", rate=0.0)
  with (folder / "metrics.jsonl").open("w") as file:
    for step, score in ((1, 0.2), (2, None), (3, 0.7)):
      line = {"step": step, "reward/azr/solve/mean": 0.1, "time/step": 1.0}
      if score is not None:
        line["evaluation/problems/pass@1/unbiased"] = score
        line["evaluation/problems/pass@1/unbiased_stderr"] = 0.03
      if step == 3:  # the last line only has scores
        line = {k: v for k, v in line.items() if "evaluation" in k} | {
          "step": 3
        }
      file.write(json.dumps(line) + "\n")
  (run,) = reading.read_runs([str(folder)])
  assert run.done == 2
  (headline,) = re.findall(r'<p class="headline">(.*?)</p>', build([run]))
  words = re.sub(r"<[^>]+>", "", headline)
  # Errors add in quadrature: 0.03 times the square root of 2.
  assert "20.0 \u00b1 3.0 % \u2192 70.0 \u00b1 3.0 %" in words
  assert "+50.0 \u00b1 4.2 points" in words


def test_runs_that_differ_in_their_seed_are_averaged(tmp_path):
  for seed, rate in enumerate((0.01, 0.02, 0.03)):
    folder = write_run(tmp_path / f"run{seed}", rate=rate)
    config = json.loads((folder / "config.json").read_text())
    config |= {"seed": seed, "optimizer": {}}
    (folder / "config.json").write_text(json.dumps(config))
  paths = [str(tmp_path / f"run{seed}") for seed in range(3)]
  text = build(reading.read_runs(paths))
  (table,) = re.findall(r"mean over seeds</th>.*?</table>", text, re.S)
  row = re.findall(r"reward in training: deduction/solve<.*?</tr>", table)[0]
  # The mean rewards of steps 21 to 30 are 25.5 times the rates 0.01, 0.02 and
  # 0.03, of steps 1 to 10 5.5 times. The error is 20 x 0.01 / 3 ** 0.5.
  assert "+0.40 \u00b1 0.12" in re.sub(r"<[^>]+>", "", row)


def test_two_runs_of_one_seed_are_no_two_seeds(tmp_path):
  one = write_run(tmp_path / "one")
  two = shutil.copytree(one, tmp_path / "two")
  text = build(reading.read_runs([str(one), str(two)]))
  assert "mean over seeds" not in text


def test_lines_that_hide_each_other_are_named(tmp_path):
  folder = write_run(tmp_path / "one")
  text = build(reading.read_runs([str(folder)] * 1))
  assert "are the same line" not in text
  copy = shutil.copytree(folder, tmp_path / "two")
  text = build(reading.read_runs([str(folder), str(copy)]))
  assert "one and two are the same line" in text


def test_an_axis_leaves_out_a_first_step_that_flattens_the_rest(tmp_path):
  values = [-2600.0, *(step / 100 for step in range(60))]
  assert axes.chart_range(values, "") == pytest.approx((0.0, 0.6))
  assert axes.chart_range([0.94, 1.0], "fraction") == (0.0, 1.0)
  assert axes.chart_range([0.0, 0.06], "fraction") == pytest.approx((0.0, 0.06))
  folder = write_run(tmp_path / "one", steps=3)
  lines = [
    json.dumps({"step": step + 1, "critic/fit": value})
    for step, value in enumerate(values)
  ]
  (folder / "metrics.jsonl").write_text("\n".join(lines))
  text = build(reading.read_runs([str(folder)]))
  assert "1 value lies beyond the axis, as far as -2,600" in text


def test_lines_are_smoothed_and_evaluations_are_marked():
  steps = [1, 2, 3, 4]
  line = Line("a", steps, [0.0, 2.0, None, 4.0])
  assert line.smoothed(2) == [0.0, 1.0, None, 3.0]
  drawn = charts.lines([line], (0, 5), 4, smooth=2)
  assert drawn.count('raw"') == 1 and drawn.count("<polyline") == 2
  rare = Line("a", steps, [None, 2.0, None, None], [None, 0.5, None, None])
  drawn = charts.lines([rare], (0, 5), 4, smooth=2)
  assert drawn.count("<circle") == 1 and drawn.count('"bar') == 1


def test_what_a_run_ran_on_is_shown(tmp_path):
  folder = write_run(tmp_path / "one")
  starts = [
    {"time": f"2026-11-2{day}T10:00:00+00:00", "commit": commit}
    | {"devices": {"TPU v5": 8}, "jax": "0.9", "python": "3.11", "cores": 4}
    | ({"cpu": "<EPYC>"} if commit == "def-dirty" else {"cpu": None})
    for day, commit in ((1, "abc"), (3, "def-dirty"))
  ]
  lines = "".join(json.dumps(start) + "\n" for start in starts)
  (folder / "starts.jsonl").write_text(lines)
  text = build(reading.read_runs([str(folder)]))
  devices = "8 x TPU v5, 4 cores"
  for words in (
    "abc, then def-dirty",
    f"{devices}, then {devices} (&lt;EPYC&gt;)",
    "2026-11-21 10:00 UTC",
  ):
    assert words in text
  assert "30 of 30" in text and "embedded:azr-tiny" in text


def test_texts_cannot_close_their_element(two):
  text = build(two)
  assert HOSTILE not in text
  (data,) = re.findall(r'json" id="samples">(.*?)</script>', text)
  texts = json.loads(data)
  assert len(texts) == 50 and texts[0]["prompt"] == HOSTILE
  assert len(texts[0]["completion"]) < 11_000
  assert "more characters" in texts[0]["completion"]


def test_all_groups_of_a_step_are_read(tmp_path):
  folder = write_run(tmp_path / "one")
  groups = [["deduction", role] for role in ("propose", "solve")]
  for path in (folder / "samples").iterdir():
    records = [json.dumps({"group": group, "prompt": ""}) for group in groups]
    path.write_text("\n".join(records))
  (run,) = reading.read_runs([str(folder)], max_texts=20)
  read = [(sample["step"], sample["group"]) for sample in run.samples]
  assert read == [(step, g) for step in range(3, 31, 3) for g in groups]


def test_texts_are_read_evenly_over_the_steps(tmp_path):
  path = str(write_run(tmp_path / "one"))
  (run,) = reading.read_runs([path], max_texts=5)
  assert [sample["step"] for sample in run.samples] == [6, 12, 18, 24, 30]
  (run,) = reading.read_runs([path], max_texts=0)
  assert not run.samples and not run.flagged


def test_invalid_lines_and_files_of_a_killed_run_are_skipped(tmp_path):
  folder = write_run(tmp_path / "one", steps=3)
  more = [
    {"step": 4, "a": 1e308, "b": 5e-324, "c": float("inf"), "d": "text"},
    {
      "step": 5,
      "a": -1e308,
      "b": 0.0,
      "c": 1.0,
      "d": [1],
      "time/update": 1e400,
    },
    {"no": "step"},
  ]
  with (folder / "metrics.jsonl").open("ab") as file:
    file.write(b"\n" + "\n".join(map(json.dumps, more)).encode())
    file.write(b"\n" + b"[" * 100_000 + b'\n{"step": 6, "e": "\xc3')
  (folder / "config.json").write_text('{"system": "az')
  (folder / "samples" / "\u00b2.jsonl").write_text("{}")
  bad = {"group": None, "reward": float("nan"), "prompt": 3, "more": [1]}
  (folder / "samples" / "000004.jsonl").write_text(json.dumps(bad))
  (folder / "flagged" / "000004.jsonl").write_text('{"reward": "high"}')
  (folder.with_name("one_scores") / "results.json").write_text("{")
  (run,) = reading.read_runs([str(folder)])
  assert run.steps == [1, 2, 3, 4, 5]
  text = build([run])
  Elements(text)
  for kind in ("samples", "flagged"):
    (data,) = re.findall(f'json" id="{kind}">(.*?)</script>', text)
    last = json.loads(data)[-1]
    assert last["step"] == 4 and last["reward"] is None


@pytest.mark.parametrize(
  "values, limits",
  [
    ([0.0, 1.0], (0.0, 1.0)),
    ([1.0, 1.0], (0.0, 1.0)),
    ([0.0, 0.37], (0.0, 0.4)),
    ([-3.0, 117.0], (-50.0, 150.0)),
    ([7.0], (2.0, 12.0)),
    ([-7.0], (-12.0, -2.0)),
    ([1e-9, 2e-9], (1e-9, 2e-9)),
  ],
)
def test_axes_end_at_round_numbers_around_the_values(values, limits):
  assert axes.value_range(values) == pytest.approx(limits)


def draw(steps, values, high, last):
  return charts.lines([Line("a", steps, values)], (0, high), last)


def test_lines_are_interrupted_without_values_and_long_ones_are_thinned():
  drawn = draw([1, 2, 3, 4, 5], [1, 2, None, 4, 5], 5, 5)
  assert drawn.count("<polyline") == 2
  sparse = draw([1, 2, 3, 4, 5], [1, None, 3, None, 5], 5, 5)
  assert sparse.count("<polyline") == 1
  # Values at regular steps, plus the last step, form one line.
  steps = list(range(1, 103))
  values = [1.0 if s % 25 == 1 or s == 102 else None for s in steps]
  assert draw(steps, values, 5, 102).count("<polyline") == 1
  # Values at irregular steps are separate points.
  values = [1.0 if s in (3, 50, 60, 90) else None for s in steps]
  assert draw(steps, values, 5, 102).count("<polyline") == 4
  steps = list(range(1, 10_001))
  gaps = [float(s) if s % 10 else None for s in steps]
  assert (
    len(re.findall(r"[\d.]+,[\d.]+", draw(steps, gaps, 1e4, 10_000))) <= 400
  )


def test_the_command_writes_one_file(tmp_path):
  write_run(tmp_path / "one", steps=3)
  out = tmp_path / "new" / "page.html"
  run = str(tmp_path / "one")
  done = subprocess.run(
    [sys.executable, "-m", "azr_jax.report", run]
    + [f"--out={out}", f"--base={run}_scores"],
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  assert out.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
  "arguments, message",
  [
    ({"paths": []}, "expected the folder of at least one run"),
    ({"paths": ["nothing"]}, "there is no such file; expected a run"),
    ({"base": "one"}, "expected a folder of azr_jax.evaluate"),
    ({"scores": ["a", "b"]}, "names 2 folders; expected one for each of 1"),
  ],
)
def test_wrong_folders_are_refused(tmp_path, monkeypatch, arguments, message):
  write_run(tmp_path / "one", steps=3)
  monkeypatch.chdir(tmp_path)
  with pytest.raises(ValueError, match=message):
    found = {"paths": ("one",), "out": "page.html"} | arguments
    command.write(command.PageRequest(**found))
  assert not (tmp_path / "page.html").exists()


# Records what the page's script shows, and whether the page is wider than the
# window.
_LOOK = """<script>
const first = document.querySelector(".browser");
const select = [...first.querySelectorAll("select")].find(
  one => [...one.options].some(option => option.value === "below 0"));
const before = first.querySelectorAll(".text").length;
select.value = "below 0"; select.oninput();
const svg = document.querySelector("figure svg");
const box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent("pointermove",
  {clientX: box.left + box.width - 3, clientY: box.top + 5}));
const seen = JSON.stringify({
  before, after: first.querySelector(".hint").textContent,
  first: first.querySelector(".text summary").textContent,
  tip: document.querySelector(".tip").textContent,
  wide: document.documentElement.scrollWidth > innerWidth,
  cut: [...document.querySelectorAll(".wide, td, figure, p, li, h1")]
    .filter(one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth)
    .map(one => one.textContent.slice(0, 60)),
  broken: window.broken === undefined ? 0 : window.broken,
  dark: document.documentElement.classList.contains("dark")});
parent.postMessage(seen, "*");
</script>"""
# Chromium windows cannot be as narrow as a phone, so the page is in a frame.
_FRAME = """<!doctype html><title>frame</title><body><script>
onmessage = message => { document.body.dataset.seen = message.data; };
</script><iframe width="WIDTH" height="900" src="page.html#dark"></iframe>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("num_runs", [1, 3])
def test_a_browser_shows_the_page(tmp_path, width, num_runs):
  runs = [str(write_run(tmp_path / f"run_{i}")) for i in range(num_runs)]
  text = build(reading.read_runs(runs))
  page_file = tmp_path / "page.html"
  # The page's policy only allows the scripts that it names.
  look = _LOOK.partition(">")[2].removesuffix("</script>")
  digest = base64.b64encode(hashlib.sha256(look.encode()).digest()).decode()
  text = text.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
  foreign = "<script>window.broken = 1</script><img src=x onerror=broken=2>"
  page_file.write_text(text.replace("</body>", f"{foreign}{_LOOK}</body>"))
  path = tmp_path / "frame.html"
  path.write_text(_FRAME.replace("WIDTH", str(width)))
  done = subprocess.run(
    [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    + [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000"]
    + [f"--window-size={width + 100},1000", f"file://{path}"],
    capture_output=True,
    text=True,
    timeout=120,
    check=True,
  )
  (seen,) = re.findall(r'data-seen="([^"]+)"', done.stdout)
  seen = json.loads(html.unescape(seen))
  assert seen["before"] == 20 and seen["dark"] and not seen["wide"]
  assert seen["cut"] == [] and seen["broken"] == 0
  assert seen["after"].startswith(f"{15 * num_runs} of {30 * num_runs} texts")
  assert re.match(r"-0\.50 (run_0 . )?step 30", seen["first"])
  assert seen["tip"].startswith("step 30") and "0.3" in seen["tip"]
  assert "broken" not in re.findall("<title>([^<]*)", done.stdout)
