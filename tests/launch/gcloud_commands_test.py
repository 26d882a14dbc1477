"""Checks every gcloud command of launcher and docs with the SDK's parser."""

import itertools
import re
import shlex
import shutil
import subprocess

import pytest
import real_sdk
import training

PAGE = training.ROOT / "docs" / "guide" / "tpu.md"
# A wrong command that `up` once used: `quotas` is only in the track `beta`.
OLD_QUOTA = (
  "gcloud quotas info describe TPUV5PPerProjectPerZoneForTPUAPI "
  "--service=tpu.googleapis.com --project=p --format=json"
)
COMMANDS = (
  *("up", "check", "create", "copy"),
  *("run", "logs", "status", "delete"),
)
# Name -> options that are used together, besides those of every command.
OPTIONS = {
  "plain": (),
  "spot on a private network": (
    "--spot",
    "--connect=iap",
    "--network=n",
    "--subnetwork=s",
    "--labels=team=a,use=b",
    "--service_account=a@p.iam.gserviceaccount.com",
    "--valid_until_duration=12h",
    "--worker=3",
  ),
  "a reservation from the same network": (
    "--reserved",
    "--connect=internal",
    "--create_flag=--tags=x,y",
    "--create_flag=--data-disk=source=projects/p/zones/z/disks/d,"
    "mode=read-only",
    "--pass_env=HF_TOKEN,LIBTPU_INIT_ARGS",
    "--weights=hf:Qwen/Qwen2.5-7B",
    "--delete_when=done",
  ),
  "taken back by itself": (
    "--max_run_duration=1d8h",
    "--connect=iap",
    "--runtime=v2-alpha-tpuv5",
    "--delete_when=ended",
  ),
}
ACCELERATORS = ("v5litepod-64", "v5litepod-8", "v5p-64", "v6e-64", "v4-32")


@pytest.fixture(name="parse")
def parse_with_sdk(sdk_parser):
  """Returns exit status and error of the SDK's parser for a command line."""
  if sdk_parser is None:
    pytest.skip(real_sdk.MISSING)

  def parse(line):
    words = shlex.split(line)
    assert words[0] == "gcloud"
    code, _, error = sdk_parser.parse(tuple(words[1:]))
    return code, error

  return parse


def commands_of(text):
  """Returns the gcloud commands in lines, without anything piped into them."""
  found = [re.search(r"(?:^|\| )(gcloud .*)", x) for x in text.splitlines()]
  return [match[1] for match in found if match]


def paths_of(lines):
  """Returns the paths of commands: the words before names and flags."""
  return {
    " ".join(
      itertools.takewhile(
        re.compile(r"[a-z][a-z-]*$").match,
        line.replace(" azr ", " AZR ").split()[1:],
      )
    )
    for line in lines
  }


@pytest.mark.parametrize(
  "name",
  [
    n if n == "plain" else pytest.param(n, marks=pytest.mark.slow)
    for n in OPTIONS
  ],
)
def test_the_sdk_understands_every_command(gcloud, parse, name):
  lines = []
  # The command `up` includes the others.
  for command in COMMANDS if name == "plain" else ("up", "logs", "delete"):
    done = gcloud(
      command, "--dry_run", *OPTIONS[name], HF_TOKEN="t", LIBTPU_INIT_ARGS="f"
    )
    assert done.returncode == 0, done.stderr
    assert not gcloud.calls and "cost:" not in done.stderr
    lines += commands_of(done.stdout)
  assert len(lines) >= 12
  faults = {
    line: error for line in lines for code, error in [parse(line)] if code
  }
  assert not faults
  tpus = {
    path.removeprefix("alpha ").removeprefix("beta ").partition("tpus ")[2]
    for path in paths_of(lines)
  }
  assert tpus >= {
    "accelerator-types describe",
    "tpu-vm versions describe",
    *(f"queued-resources {verb}" for verb in ("create", "describe", "delete")),
    *("tpu-vm ssh", "tpu-vm scp"),
  }


@pytest.mark.parametrize("accelerator", ACCELERATORS)
@pytest.mark.parametrize("spot", [False, True])
def test_the_sdk_understands_commands_for_each_kind(
  launchers, parse, accelerator, spot
):
  commands = launchers("gcloud")
  tpu = launchers("tpu_slice").Slice(
    "azr", "p", "us-west4-a", accelerator, spot=spot
  )
  tpu.check()
  assert bool(tpu.quota) == (not accelerator.startswith("v4"))
  for command in (
    *(commands.create(tpu), commands.accelerator(tpu), commands.runtime(tpu)),
    *(commands.quota(tpu), commands.state(tpu), commands.failure(tpu)),
    *(commands.count(tpu), commands.delete(tpu)),
  ):
    assert not parse(shlex.join(command.argv()))[0]
  cores = {"v5litepod-64": 64, "v5p-64": 32, "v4-32": 16}
  assert tpu.chips == cores.get(accelerator, tpu.size)


def test_the_parser_refuses_what_this_sdk_lacks(parse):
  code, error = parse(OLD_QUOTA)
  if "gcloud beta quotas" not in error:
    pytest.skip("this SDK has `gcloud quotas` in its main track")
  assert code == 2 and "Invalid choice: 'quotas'" in error


@pytest.mark.parametrize(
  "line",
  [
    "gcloud compute tpus queued-resources create azr --zone=z --project=p",
    "gcloud compute tpus queued-resources delete azr --zone=z --forced",
    "gcloud compute tpus tpu-vm ssh azr --zone=z --comand=x",
    "gcloud compute tpus queued-resources create azr --node-id=azr --zone=z "
    "--accelerator-type=a --runtime-version=v --valid-until-duration=soon",
  ],
)
def test_the_parser_is_no_yes_man(parse, line):
  code, error = parse(line)
  assert code == 2 and error


def test_a_command_is_taken_from_the_track_that_has_it(gcloud, launchers):
  sdk, commands = launchers("sdk"), launchers("gcloud")
  helps = {
    ("a", "b"): "",
    ("beta", "a", "b"): "SYNOPSIS --zone",
    ("alpha", "a", "b"): "SYNOPSIS \x1b[1m--zone\x1b[m --tunnel",
  }
  here = sdk.Sdk(dry_run=False, _help=helps)

  def argv(*flags):
    return here.argv(commands.Command(("a", "b"), flags, probed=True))

  assert argv("x", "--zone=z") == ["gcloud", "beta", "a", "b", "x", "--zone=z"]
  assert argv("--tunnel")[1] == "alpha"
  with pytest.raises(sdk.CommandError, match="expected a newer SDK"):
    argv("--zones")


def test_without_an_sdk_a_dry_run_prints_what_is_known(tmp_path, gcloud):
  (gcloud.folder / "gcloud").unlink()
  (tmp_path / "git").symlink_to(shutil.which("git"))
  process = gcloud.start("up", "--dry_run", "--connect=iap", PATH=str(tmp_path))
  out, error = process.communicate(timeout=60)
  assert process.returncode == 0, error
  assert "gcloud beta quotas info describe" in out
  assert "gcloud alpha compute tpus tpu-vm ssh" in out
  process = gcloud.start("status", PATH=str(tmp_path))
  _, error = process.communicate(timeout=60)
  assert process.returncode == 1 and "gcloud is not installed" in error


def test_the_page_names_commands_that_the_sdk_understands(parse):
  text = PAGE.read_text("utf-8").replace("\\\n", " ")
  commands = re.findall(r"^ *(gcloud .*)$", text, re.MULTILINE)
  # Inline code may also name a command without its arguments.
  inline = [" ".join(x.split()) for x in re.findall("`(gcloud [^`]*)`", text)]
  commands += [line for line in inline if " --" in line]
  assert len(commands) >= 7
  faults = [line for line in commands if parse(_filled(line))[0]]
  assert not faults


def _filled(line):
  """Returns a command with its placeholders replaced by names."""
  return re.sub(r"\b(PROJECT|BUCKET|ACCOUNT|NETWORK)\b", "name", line)


def test_the_words_of_dry_runs_are_for_a_shell(gcloud):
  done = gcloud("run", "--dry_run", "--pass_env=HF_TOKEN", HF_TOKEN="hf_secret")
  assert "hf_secret" not in done.stdout + done.stderr
  (line,) = [x for x in done.stdout.splitlines() if "nohup" in x]
  checked = subprocess.run(["bash", "-n", "-c", line], check=False)
  assert checked.returncode == 0
