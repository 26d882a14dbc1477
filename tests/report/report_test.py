"""The report page: its data, its charts, and how a browser shows it."""

import html.parser
import json
import re
import shutil
import subprocess
import sys

import pytest

from azr_jax.report import charts, command, page, reading, sections

CHROMIUM = next(
  filter(
    None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
  ),
  None,
)
HOSTILE = "</script><script>document.title='broken'</script><b onclick=x>&amp;"


def write_run(folder, steps=30, rate=0.01, system="azr"):
  """Writes a run folder like `azr_jax.train`, and its scores folder."""
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
    line |= {f"time/{name}": 0.4 for name in sections.PHASES[0][1:]}
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
  """Collects elements; fails if they are not closed in order."""

  VOID = ("meta", "input", "line", "rect", "polyline", "polygon", "br")

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


def test_the_page_is_valid_and_refers_to_no_other_file(two):
  text = page.build(two, {"humaneval_plus": (0.4, 0.0)})
  page_elements = Elements(text)
  for tag, attributes in page_elements.elements:
    assert tag not in ("link", "img", "iframe")
    assert "src" not in attributes
    assert attributes.get("href", "#").startswith("#")
  assert "http" not in text.replace("http-equiv", "")
  # Every metric is drawn once per run.
  titles = re.findall(r"<figcaption>([^<]+?) *<", text)
  assert titles.count("Reward") == titles.count("new_family/of") == 2
  assert text.count("<polygon") == 2 * len(sections.PHASES[0][1:])
  assert "+11.0" in text and "+12.0" in text  # differences to the base
  assert "1 differences" not in text and "2 differences" in text


def test_figures_of_two_runs_have_one_axis(two):
  text = page.build(two)
  highs = re.findall(
    r"<figcaption>Reward <.*?data-low=\"(\S+)\" data-high=\"(\S+)\"", text
  )
  assert highs == [("0", "0.4")] * 2  # 0.4 is the second run's maximum


def test_texts_cannot_close_their_element(two):
  text = page.build(two)
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
  text = page.build([run])
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
  assert charts.value_range(values) == pytest.approx(limits)


def test_lines_are_interrupted_without_values_and_long_ones_are_thinned():
  drawn = charts.lines([1, 2, 3, 4, 5], {"a": [1, 2, None, 4, 5]}, (0, 5), 5)
  assert drawn.count("<polyline") == 2
  sparse = charts.lines(
    [1, 2, 3, 4, 5], {"a": [1, None, 3, None, 5]}, (0, 5), 5
  )
  assert sparse.count("<polyline") == 1
  # Values at regular steps and at the last step are one line.
  steps = list(range(1, 103))
  values = [1.0 if s % 25 == 1 or s == 102 else None for s in steps]
  often = charts.lines(steps, {"a": values}, (0, 5), 102)
  assert often.count("<polyline") == 1
  # Values at irregular steps are separate points.
  values = [1.0 if s in (3, 50, 60, 90) else None for s in steps]
  rare = charts.lines(steps, {"a": values}, (0, 5), 102)
  assert rare.count("<polyline") == 4
  steps = list(range(1, 10_001))
  gaps = [float(s) if s % 10 else None for s in steps]
  long = charts.lines(steps, {"a": gaps}, (0, 1e4), 10_000)
  assert len(re.findall(r"[\d.]+,[\d.]+", long)) <= 400


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
    command.write(**({"paths": ["one"], "out": "page.html"} | arguments))
  assert not (tmp_path / "page.html").exists()


# Records what the page's script has shown, and whether the page is wider than
# the window.
_LOOK = """<script>
const first = document.querySelector(".browser");
const select = first.querySelectorAll("select")[1];
const before = first.querySelectorAll(".text").length;
select.value = "below 0"; select.oninput();
const svg = document.querySelector("figure svg");
const box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent("pointermove",
  {clientX: box.left + box.width - 3, clientY: box.top + 5}));
document.body.dataset.seen = JSON.stringify({
  before, after: first.querySelector(".hint").textContent,
  first: first.querySelector(".text summary").textContent,
  tip: document.querySelector(".tip").textContent,
  wide: document.documentElement.scrollWidth > innerWidth,
  dark: document.documentElement.classList.contains("dark")});
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_shows_the_page(tmp_path, width):
  run = write_run(tmp_path / "one")
  text = page.build(reading.read_runs([str(run)]))
  path = tmp_path / "page.html"
  path.write_text(text.replace("</body>", f"{_LOOK}</body>"))
  done = subprocess.run(
    [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    + [f"--user-data-dir={tmp_path / 'profile'}"]
    + [f"--window-size={width},900", f"file://{path}#dark"],
    capture_output=True,
    text=True,
    timeout=120,
    check=True,
  )
  (seen,) = re.findall(r'data-seen="([^"]+)"', done.stdout)
  seen = json.loads(html.unescape(seen))
  assert seen["before"] == 20 and seen["dark"] and not seen["wide"]
  assert seen["after"] == "15 of 30 texts, newest first"
  assert seen["first"].startswith("-0.50 step 30")
  assert seen["tip"].startswith("step 30") and "0.3" in seen["tip"]
  assert "broken" not in re.findall("<title>([^<]*)", done.stdout)
