"""Everything that pages name exists: paths, modules, commands, config keys."""

import ast
import dataclasses
import functools
import importlib
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import pytest
import scripted
import training
from typed import stand_in

from azr_jax import types
from azr_jax.config.settings import build
from azr_jax.curricula import curriculum
from azr_jax.curricula.curriculum import Buckets
from azr_jax.evals import registry as benchmarks
from azr_jax.executor import Executor
from azr_jax.learner import advantages, policy_losses, surrogate_losses
from azr_jax.systems import registry
from azr_jax.systems.system import Context
from azr_jax.trainer import settings as train_settings
from tests import metrics_page

ROOT = pathlib.Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [
  README,
  ROOT / "CONTRIBUTING.md",
  ROOT / "azr_jax" / "executor" / "README.md",
  *sorted((ROOT / "docs").rglob("*.md")),
]
TOP = (
  *("azr_jax", "configs", "docs", "experiments", "launch", "notebooks"),
  *("tests", ".ci"),
)
SUFFIXES = "py md ipynb sbatch toml tsv yml yaml png Dockerfile".split()
# Folders in a run's folder, which are not in the repository.
RUN_FOLDERS = (
  *("samples/", "flagged/", "tensorboard/"),
  *("checkpoints/", "damaged_checkpoints/", "profile/"),
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")
_IMAGE = re.compile(r'<img\b[^>]*\bsrc="([^"]+)"')
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
_PATH = re.compile(r"(?<![\w/.:~$@-])[\w.*][\w.*-]*(?:/[\w.*-]+)*/?")
_MODULE = re.compile(r"(?<![\w/.])(azr_jax(?:\.\w+)+)")
_KEY = re.compile(r"(?<![\w/.-])(--config\.)?([a-z_]+(?:\.[a-z_0-9]+)+)")
_FLAG = re.compile(r'DEFINE_\w+\(\s*"(\w+)"|"--(\w+)"')
# The file that a page shows in full, and its section of a config.
EXAMPLE, PARTS = "palindromes", "parts.py"


@dataclasses.dataclass(frozen=True)
class Page:
  """The parts of a page that name code.

  Attributes:
    code: inline code, and the blocks of commands and text.
    commands: the command lines in `code`.
    links: link targets and images inside the repository.
  """

  code: tuple[str, ...]
  commands: tuple[str, ...]
  links: tuple[str, ...]


@functools.cache
def read(path: pathlib.Path) -> Page:
  """Returns the code, commands and links of a page."""
  text = path.read_text("utf-8")
  blocks = [block for language, block in _FENCE.findall(text) if not language]
  blocks += [block for name, block in _FENCE.findall(text) if name == "bash"]
  spans = _SPAN.findall(_FENCE.sub("", text))
  lines = [
    part
    for block in [*blocks, *spans]
    for line in block.replace("\\\n", " ").splitlines()
    for part in re.split(r"&&|\|", line)
  ]
  links = [*_LINK.findall(text), *_IMAGE.findall(text)]
  links = [link for link in links if "://" not in link]
  return Page(
    (*blocks, *spans), tuple(filter(_is_command, lines)), tuple(links)
  )


def _is_command(line: str) -> bool:
  foreign = r"python -m (?:venv|pip|zensical)\b"
  starts = rf"(?!{foreign})(?:python -m |python launch/|azr_jax\.\w+ --)"
  return re.match(starts, line.strip()) is not None


def _paths(page: Page) -> Iterator[str]:
  """Yields the paths on a page. After a folder, names are files in it."""
  for line in (line for code in page.code for line in code.splitlines()):
    folder = ""
    for path in _PATH.findall(line):
      if "..." in path or re.fullmatch(r"[\d./*-]+", path):
        continue
      # A reward with a weight is written WEIGHT*FILE.py.
      path = re.sub(r"^[\d.]+\*", "", path.rstrip("."))
      is_file = path.rpartition(".")[2] in SUFFIXES and "." in path[1:]
      is_folder = path.endswith("/") and path not in RUN_FOLDERS
      if "/" in path and path.partition("/")[0] in TOP:
        yield path
      elif (is_file or is_folder) and path not in (f"{EXAMPLE}.py", PARTS):
        yield folder + path
      if line.startswith(path) and is_folder:
        folder = path


def _exists(path: str, page: pathlib.Path) -> bool:
  """Returns whether a path is in the repository; NAME matches any name."""
  pattern = re.sub(r"\b[A-Z][A-Z_]+\b", "*", path.rstrip("/"))
  folders = (ROOT, ROOT / "azr_jax", page.parent)
  return any(any(folder.glob(pattern)) for folder in folders)


def _module_exists(name: str) -> bool:
  """Returns whether a module exists, or a name in one."""
  here, parts = ROOT, name.split(".")
  for part in parts:
    if (here / part).is_dir():
      here = here / part
    elif (here / f"{part}.py").is_file():
      here = here / f"{part}.py"
    elif here.is_file():
      text = here.read_text("utf-8")
      return bool(re.search(rf"^(def|class) {part}\b|^{part}\b", text, re.M))
    else:
      return False
  return True


def _file_of(module: str) -> pathlib.Path | None:
  """Returns the file that `python -m module` runs, or the module's file."""
  path = ROOT.joinpath(*module.split("."))
  files = (path.with_suffix(".py"), path / "__main__.py", path / "__init__.py")
  return next((file for file in files if file.is_file()), None)


def _imports(file: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields the files of the repository that a file imports."""
  for node in ast.walk(ast.parse(file.read_text("utf-8"))):
    names = []
    if isinstance(node, ast.ImportFrom) and node.module:
      names = [node.module, *(f"{node.module}.{n.name}" for n in node.names)]
    elif isinstance(node, ast.Import):
      names = [name.name for name in node.names]
    for name in names:
      sibling = file.with_name(f"{name}.py")
      found = sibling if sibling.is_file() else _file_of(name)
      if found is not None:
        yield found


@functools.cache
def _flags(program: pathlib.Path) -> frozenset[str]:
  """Returns the flags of a program, and of modules up to two imports away."""
  files = {program}
  for _ in range(2):
    files |= {found for file in files for found in _imports(file)}
  return frozenset(
    absl or other
    for file in files
    for absl, other in _FLAG.findall(file.read_text("utf-8"))
  )


def _flat(config, prefix="") -> set[str]:
  """Returns the dotted keys of a config, including sections."""
  keys = set()
  for key, value in config.items():
    keys.add(prefix + key)
    if hasattr(value, "items"):
      keys |= _flat(value, f"{prefix}{key}.")
  return keys


@functools.cache
def _config_keys(spec: str) -> frozenset[str]:
  """Returns the keys of FILE[:VARIANT]. Raises any error of the file."""
  path, _, variant = spec.partition(":")
  name = path.removesuffix(".py").replace("/", ".")
  module = importlib.import_module(name)
  variant = variant.partition(",")[0]
  config = module.get_config(variant) if variant else module.get_config()
  return frozenset(_flat(config))


@functools.cache
def _all_keys() -> frozenset[str]:
  """Returns the keys of every config of the repository."""
  keys: set[str] = set()
  for file in sorted((ROOT / "configs").glob("[a-z]*.py")):
    module = importlib.import_module(f"configs.{file.stem}")
    for variant in getattr(module, "VARIANTS", ("",)):
      keys |= _config_keys(f"configs/{file.name}:{variant}")
  return frozenset(keys)


def _parts(command: str) -> Iterator[tuple[str, list[str]]]:
  """Yields each program of a command line, with its arguments."""
  words = shlex.split(command.replace("<", " ").replace(">", " "))
  words = words[words.index("python") + 1 :] if "python" in words else words
  while words:
    words = words[1:] if words[0] == "-m" else words
    end = words.index("--") if "--" in words else len(words)
    yield words[0], words[1:end]
    words = words[end + 1 :]


def _command_faults(command: str) -> Iterator[str]:
  for name, arguments in _parts(command):
    program = ROOT / name if name.endswith(".py") else _file_of(name)
    if program is None or not program.is_file():
      yield f"{command!r}: no program {name}"
      continue
    keys = _all_keys()
    for argument in arguments:
      flag, _, value = argument.partition("=")
      if flag == "--config" and not value.isupper():
        try:
          keys = _config_keys(value)
        except (ImportError, ValueError) as error:
          yield f"{command!r}: {error}"
      elif flag.startswith("--config."):
        if flag.removeprefix("--config.") not in keys:
          yield f"{command!r}: its config has no key {flag}"
      elif flag.startswith("--") and flag not in ("--config", "--help"):
        if flag.removeprefix("--") not in _flags(program):
          yield f"{command!r}: {name} has no flag {flag}"


def _name(path: pathlib.Path) -> str:
  return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_every_path_is_there(path):
  page = read(path)
  missing = [name for name in _paths(page) if not _exists(name, path)]
  missing += [link for link in page.links if not (path.parent / link).exists()]
  assert not missing


def test_every_page_that_code_names_is_there():
  named = {
    (_name(file), page)
    for folder in ("azr_jax", "configs", "launch")
    for file in sorted((ROOT / folder).rglob("*.py"))
    for page in re.findall(r"\bdocs/[\w./-]+\.md\b", file.read_text("utf-8"))
  }
  assert len(named) > 5
  assert not [(file, page) for file, page in named if not _exists(page, ROOT)]


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_no_placeholder_is_left(path):
  assert not re.search(r"@[A-Z]+@", path.read_text("utf-8"))


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_every_module_is_there(path):
  names = [name for code in read(path).code for name in _MODULE.findall(code)]
  assert not [name for name in names if not _module_exists(name)]


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_every_command_has_its_flags_and_its_config(path):
  commands = read(path).commands
  assert not [fault for line in commands for fault in _command_faults(line)]


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_every_config_key_is_there(path):
  keys = _all_keys()
  sections = {key.partition(".")[0] for key in keys if "." in key}
  named = [
    (given, key)
    for code in read(path).code
    for given, key in _KEY.findall(code)
    if given or key.partition(".")[0] in sections
    if key.rpartition(".")[2] not in (*SUFFIXES, "gguf")
    if not key.startswith(f"{EXAMPLE}.")
  ]
  assert not [key for _, key in named if key not in keys]


def test_the_commands_are_seen():
  pages = map(read, PAGES)
  assert sum(len(page.commands) for page in pages) > 30


def _package(file: pathlib.Path) -> str:
  """Returns the folder of `azr_jax` that a file is in, or its own name."""
  parts = file.relative_to(ROOT / "azr_jax").with_suffix("").parts
  return parts[0]


def test_imports_point_downwards():
  page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
  lines = page.partition("```\ncommands")[2].partition("```")[0].splitlines()
  rank = {
    name: number
    for number, line in enumerate(lines)
    for name in line.split(", ")
  }
  upwards = {
    (_name(file), _name(imported))
    for file in sorted((ROOT / "azr_jax").rglob("*.py"))
    # Files that `python -m` runs are commands, wherever they are.
    if file.name != "__main__.py"
    if not file.is_relative_to(ROOT / "azr_jax" / "configs")
    for imported in _imports(file)
    if imported.is_relative_to(ROOT / "azr_jax")
    if _package(imported) not in (_package(file), "__init__", "__main__")
    if rank.get(_package(imported), 0) <= rank.get(_package(file), 0)
  }
  assert not upwards


def test_the_readme_is_a_door():
  text = README.read_text("utf-8")
  lines = text.splitlines()
  assert len(lines) <= 130 and max(map(len, lines)) <= 100
  train = "python -m azr_jax.train --config=configs/azr.py:tiny"
  assert f"pip install -e . && {train} --workdir=/tmp/azr" in text
  assert "pip install -e '.[test]' && pytest" in text


def test_the_page_of_metrics_says_what_the_code_says():
  text = metrics_page.PAGE.read_text("utf-8")
  assert metrics_page.with_table(text) == text, (
    "run: python -m tests.metrics_page"
  )


class _Mirror(scripted.Policy):
  """A policy that repeats the last letter of its prompt four times."""

  def prompt(self, text):
    return types.Prompt(text, (1,))

  @scripted.samples
  def sample(self, prompts, n):
    for index, prompt in enumerate(prompts):
      letter = prompt.text.rstrip(": ")[-1]
      for sample in range(n):
        text = f"{letter * 4}{'?' * 4 * sample}"
        ids, floats = np.arange(4, dtype=np.int32), np.zeros(4, np.float32)
        done = types.Completion(ids, floats, floats == 0, "stop", text)
        yield index, sample, done


def _write_example(page, file, words):
  """Writes a page's first Python block that contains `words` to a file."""
  page = (ROOT / "docs" / "guide" / page).read_text("utf-8")
  file.write_text(
    next(
      block
      for language, block in _FENCE.findall(page)
      if language == "python" and words in block
    )
  )


def test_the_examples_of_parts_work(tmp_path):
  file = tmp_path / PARTS
  _write_example("parts.md", file, "CAPITALS")
  config = train_settings.train_config("custom")
  config.custom.reward = "judge"
  config.custom.curriculum = f"{file}:hardest"
  config.learner.estimator = f"{file}:ranks"
  config.learner.policy_loss = f"{file}:unclipped"
  c = train_settings.read_train(config).shared.learner
  got = advantages.estimate(c.estimator, [3.0, 1.0, 2.0], "aaa", [1, 1, 1])
  np.testing.assert_array_equal(got, [1.0, -1.0, 0.0])
  loss = policy_losses.make(c.policy_loss, c).loss
  ones = jnp.ones((1, 2))
  targets = surrogate_losses.Targets(
    9 * ones, ones, ones, ones, ones, ones.astype(int)
  )
  np.testing.assert_array_equal(loss(targets)[0], -c.iw_clip_max * ones)
  buckets = Buckets(("easy", "hard"), [0, 1])
  made = curriculum.make(f"{file}:hardest", buckets)
  made.sample(1, 4, np.random.default_rng(0))
  assert made.metrics()["probability/hard"] == 0.75
  benchmark = benchmarks.find(f"{file}:CAPITALS")
  item = benchmark.read("")[0]
  assert (
    benchmark.grade(stand_in(Executor), item, "It is Paris.").result().correct
  )


def test_the_example_of_a_system_works(tmp_path):
  file = tmp_path / f"{EXAMPLE}.py"
  _write_example("system.md", file, "(System)")
  system = registry.load(f"{file}:Palindromes")
  context = stand_in(Context, seed=0)
  settings = build(system.Settings, {"prompts": 3, "group_size": 2})
  rollouts = scripted.collect(system(settings, context), _Mirror(), 1)
  rewards = [t.reward for t in rollouts.trajectories]
  assert rewards == [1.0, 0.5] * 3
  assert [t.group_id for t in rollouts.trajectories] == [0, 0, 1, 1, 2, 2]
  assert rollouts.metrics["groups/palindromes/equal_fraction"] == 0


def test_the_site_builds(tmp_path):
  """Without warnings, such as about a link, an anchor or an included file."""
  # The site is written next to the settings file.
  shutil.copy(ROOT / "zensical.toml", tmp_path)
  shutil.copytree(ROOT / "docs", tmp_path / "docs")
  for name in ("CONTRIBUTING.md", "azr_jax", "experiments"):
    (tmp_path / name).symlink_to(ROOT / name)
  built = subprocess.run(
    [sys.executable, "-m", "zensical", "build", "--strict"],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert built.returncode == 0, built.stdout + built.stderr
  page = tmp_path / "site" / "results" / "orz_critic" / "index.html"
  assert "expected_sd" in page.read_text("utf-8")


def test_the_figures_are_those_of_their_script(tmp_path):
  script = tmp_path / "draw.py"
  for file in ("draw.py", "curve.csv", "elicitation.csv"):
    shutil.copy(ROOT / "docs" / "figures" / file, tmp_path)
  subprocess.run([sys.executable, str(script)], check=True, timeout=60)
  drawn = [path.read_bytes() for path in sorted(tmp_path.glob("*.svg"))]
  kept = sorted((ROOT / "docs" / "figures").glob("*.svg"))
  assert drawn == [path.read_bytes() for path in kept]


def test_guide_pages_are_short():
  for page in (ROOT / "docs" / "guide").glob("*.md"):
    assert len(page.read_text("utf-8").splitlines()) < 150, page


@pytest.mark.slow  # tests/custom_train_test.py calls the same functions.
def test_the_ten_lines_of_one_s_own_reward_train(tmp_path):
  page = (ROOT / "docs" / "guide" / "reward.md").read_text("utf-8")
  blocks = [block for name, block in _FENCE.findall(page) if name == "python"]
  code = blocks[0] + blocks[1] + "print(len(logprobs[0]), len(metrics) > 9)"
  assert len([line for line in blocks[0].splitlines() if line.strip()]) <= 10
  code = code.replace("/tmp/steps", str(tmp_path)).replace(
    "steps=10", "steps=2, prompts=4, group_size=4, max_tokens=16"
  )
  done = subprocess.run(
    [sys.executable, "-c", code],
    cwd=ROOT,
    env=training.environment(),
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-3000:]
  rewards, scored = done.stdout.splitlines()
  assert len(ast.literal_eval(rewards)) == 2
  assert scored.endswith(" True") and int(scored.split()[0]) > 5
