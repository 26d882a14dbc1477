"""The check that CI has a browser."""

import shutil
import subprocess

import pytest
import training

BASH = shutil.which("bash") or "/bin/bash"
NEEDED = "no browser for the test of the report: install chromium\n"
SKIPPED = "no browser: the test of the report is skipped; install chromium\n"
FAIL = "echo no network; exit 100"
INSTALL = 'cp "$0" "${0%/*}/chromium"'


@pytest.mark.parametrize(
  "ci, browser, user, install, status, out, err",
  [
    ("", "", 0, FAIL, 0, SKIPPED, ""),
    ("", "google-chrome", 0, FAIL, 0, "", ""),
    ("1", "chromium", 0, FAIL, 0, "", ""),
    ("1", "", 0, INSTALL, 0, "", ""),
    ("1", "", 0, FAIL, 1, "", "no network\n" + NEEDED),
    ("1", "", 1000, INSTALL, 1, "", NEEDED),
  ],
)
def test_ci_fails_without_a_browser(
  tmp_path, ci, browser, user, install, status, out, err
):
  programs = {"id": f"echo {user}", "apt-get": install}
  if browser:
    programs[browser] = ""
  for name, text in programs.items():
    program = tmp_path / name
    program.write_text(f"#!{BASH}\nPATH=/usr/bin:/bin\n{text}\n")
    program.chmod(0o755)
  done = subprocess.run(
    [BASH, str(training.ROOT / ".ci" / "browser")],
    env={"PATH": str(tmp_path), "CI": ci},
    capture_output=True,
    text=True,
    check=False,
  )
  assert (done.returncode, done.stdout, done.stderr) == (status, out, err)
