"""The page that is served while runs train."""

import json
import threading
import urllib.error
import urllib.request

import pytest

from azr_jax.report import follow
from azr_jax.report.command import PageRequest


@pytest.fixture(name="run")
def write_run(tmp_path):
  folder = tmp_path / "run"
  folder.mkdir()
  (folder / "config.json").write_text('{"train": {"steps": 9}}')
  return folder


def log(folder, step):
  line = {"step": step, "time/step": 1.0, "learner/entropy": step / 7}
  with (folder / "metrics.jsonl").open("a") as file:
    file.write(json.dumps(line) + "\n")


def get(address, **headers):
  """Returns the status, ETag and text of a response."""
  request = urllib.request.Request(address, headers=headers)
  try:
    with urllib.request.urlopen(request, timeout=60) as answer:
      return answer.status, answer.headers["ETag"], answer.read().decode()
  except urllib.error.HTTPError as error:
    return error.code, None, ""


def test_a_page_follows_its_run_from_before_the_first_step(run, tmp_path):
  out = tmp_path / "page.html"
  live = follow.Live(PageRequest((str(run),), str(out)), 3.0)
  live.update()
  with follow.serve(live, "127.0.0.1", 0) as address:
    status, tag, text = get(address)
    assert status == 200 and "Waiting for the first step" in text
    assert not live.update()
    assert get(address, **{"If-None-Match": tag})[0] == 304
    for step in (1, 2):
      log(run, step)
    assert live.update()
    status, new_tag, text = get(address, **{"If-None-Match": tag})
    assert status == 200 and new_tag != tag
    assert "2 of 9" in text and 'data-live="3"' in text
    assert out.read_text() == text
    log(run, 3)
    assert live.update() and "3 of 9" in get(address)[2]
    # Serves only the page, and not to other sites through DNS rebinding.
    assert get(address + "etc/passwd")[0] == 404
    assert get(address, Host="example.org")[0] == 403


def test_scores_that_come_later_are_shown(run, tmp_path):
  log(run, 1)
  live = follow.Live(PageRequest((str(run),), str(tmp_path / "page.html")), 3.0)
  live.update()
  assert "humaneval_plus" not in live.text
  scores = tmp_path / "run_scores"
  scores.mkdir()
  found = {"scores": {"humaneval_plus/pass@1/unbiased": 0.25}}
  (scores / "results.json").write_text(json.dumps(found))
  assert live.update() and "25.0 %" in live.text


def test_following_ends_when_it_is_told_to(run, tmp_path, capsys):
  log(run, 1)
  stop = threading.Event()
  request = PageRequest((str(run),), str(tmp_path / "page.html"))
  place = follow.Place(every_s=0.05)
  thread = threading.Thread(target=follow.follow, args=(request, place, stop))
  thread.start()
  stop.set()
  thread.join(60)
  assert not thread.is_alive()
  assert (tmp_path / "page.html").exists()
  assert "http://127.0.0.1:" in capsys.readouterr().err


def test_wrong_requests_are_refused_before_anything_is_served(tmp_path):
  request = PageRequest(("a",), str(tmp_path / "page.html"), scores=("b", "c"))
  with pytest.raises(ValueError, match="names 2 folders"):
    follow.Live(request, 3.0)
