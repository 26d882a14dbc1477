"""The structure of the code: imports, sizes, reasons of ignores."""

import ast
import pathlib
import re

import pytest
from typed import present

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "azr_jax"
FILES = [
  file
  for file in sorted(PACKAGE.rglob("*.py"))
  if not file.is_relative_to(PACKAGE / "configs")
]
# Every Python file but this one, which contains the patterns it looks for.
ALL_FILES = [
  file
  for folder in ("azr_jax", "configs", "launch", "tests")
  for file in sorted((ROOT / folder).rglob("*.py"))
  if file != pathlib.Path(__file__)
]
MAX_FUNCTION_LINES = 80
# Packages that may refer to systems by name. Graders, corpora and benchmarks
# are named by their tasks, as systems are.
KNOW_SYSTEMS = (
  *("systems", "corpora", "evals", "report", "grading", "executor"),
  "api.py",
)
# The laboratory measures systems and generates data for them.
IMPORT_SYSTEMS = (*KNOW_SYSTEMS, "lab")
SYSTEM_NAME = re.compile(
  r"[\"'](azr|orz|countdown|code_interpreter|custom)[\"']"
)
# Generators and keys made from a seed. A key of seed 0 is only a placeholder.
# The last line finds statements that change Python's or NumPy's own generator.
SEEDED = re.compile(
  r"default_rng\(|RandomState\(|\bRandom\(|SeedSequence\("
  r"|random\.(key|PRNGKey)\((?!0\))"
  r"|^\s*(np\.|numpy\.)?random\.(seed|setstate|set_state)\(",
  re.MULTILINE,
)
# Files with generators of their own.
OWN_GENERATORS = {
  # Published questions and puzzles, which must stay the same.
  "corpora/programs/heldout.py",
  "evals/multiple_choice.py",
  "tasks/countdown/generator.py",
  "tasks/questions/symbench/gridworld.py",
  "tasks/table/sums.py",
  # Seeds the global generators, from which reasoning-gym draws, and restores
  # their states.
  "tasks/gym_sets.py",
  # Episodes, seeded by their tasks.
  "environments/server.py",
  "systems/environment/examples.py",
  # Programs inside prompts.
  "tasks/programs/environment_prompts.py",
  # A model without a device, and seeds that clients choose.
  "rollout/host_engine.py",
  "serving/protocol.py",
}
# An array type, and one with a shape, such as `Float[Array, 'B S']`.
ARRAY = re.compile(r"\b(Array|np\.ndarray|jnp\.ndarray|Leaf)\b")
SHAPED = re.compile(r"\w+\[[\w.]+, '[^']*'\]")


def imports_of(file):
  """Returns the paths of this package's modules that a file imports."""
  found = set()
  for node in ast.walk(ast.parse(file.read_text())):
    module = isinstance(node, ast.ImportFrom) and node.module or ""
    if isinstance(node, ast.ImportFrom) and module.startswith("azr_jax"):
      for alias in node.names:
        parts = [*module.split("."), alias.name]
        for path in ("/".join(parts), "/".join(parts[:-1])):
          if (ROOT / f"{path}.py").exists():
            found.add(ROOT / f"{path}.py")
            break
  return found


def test_no_module_imports_itself_by_way_of_others():
  imports = {file: imports_of(file) for file in FILES}
  done, open_files = set(), []

  def visit(file):
    assert file not in open_files, [
      str(f.relative_to(ROOT)) for f in [*open_files, file]
    ]
    if file in done:
      return
    open_files.append(file)
    for other in imports.get(file, ()):
      visit(other)
    open_files.pop()
    done.add(file)

  for file in FILES:
    visit(file)
  assert len(done) >= len(FILES) > 200


def test_the_top_level_has_commands_alone():
  for file in sorted(PACKAGE.glob("*.py")):
    if file.name in ("__init__.py", "api.py", "types.py"):
      continue
    lines = file.read_text().splitlines()
    assert "def run() -> None:" in lines, file.name
    assert len(lines) <= 90, (file.name, len(lines))


def test_the_executor_imports_no_jax():
  for file in (PACKAGE / "executor").rglob("*.py"):
    assert not re.search(r"^\s*(import|from) jax\b", file.read_text(), re.M)


@pytest.mark.parametrize(
  "package, builders",
  [
    ("rollout", {"build.py", "layout.py", "sampler.py"}),
    # The dispatcher's side passes the settings to servers.
    (
      "executor",
      {
        "__main__.py",
        *("pool/executor.py", "pool/cluster.py", "pool/local_server.py"),
        "pool/server.py",
      },
    ),
  ],
)
def test_settings_end_where_something_is_built(package, builders):
  folder = PACKAGE / package
  found = {
    str(file.relative_to(folder))
    for file in folder.rglob("*.py")
    if folder / "settings.py" in imports_of(file)
  }
  assert found == builders


# Modules that take sections of a config, by folder: those that build something
# from them, and in `trainer/` those that choose sizes and print suggestions. A
# run's log builds the trackers that `train.trackers` names.
_TAKES_SECTIONS: dict[str, set[str]] = {
  "corpora": {"registry.py"},
  "curricula": set(),
  "environments": set(),
  "evals": set(),
  "functions": set(),
  "grading": set(),
  "learner": {"corrections.py", "policy_losses.py"},
  "models": set(),
  "parallel": set(),
  "run": {"step_log.py"},
  "serving": {"command.py", "tinker/command.py"},
  "systems": {
    # A context has the sandbox's section, because a system compares the sandbox
    # with that of earlier runs.
    "system.py",
    *(
      f"{f.parent.name}/system.py" for f in PACKAGE.glob("systems/*/system.py")
    ),
    "benchmark_agents.py",
    "countdown/sources.py",
    "custom/build.py",
  },
  "tasks": set(),
  "text": set(),
  "tools": set(),
  "trainer": {
    *("build.py", "decoders.py", "learner_parts.py", "frozen.py"),
    *("loading.py", "messages.py", "opening.py"),
    *("sizes.py", "teachers.py", "user_prompts.py"),
    *("periodic_evals.py", "scoring.py", "sft_loop.py", "sft_plan.py"),
    "start.py",
    # Sections check each other.
    *("evaluation_settings.py", "settings.py"),
  },
}


def takes_sections(tree):
  """Returns whether an argument or a field holds a section of a config.

  A section's own fields may be sections.
  """
  declared = {
    field
    for node in ast.walk(tree)
    if isinstance(node, ast.ClassDef)
    if any(ast.unparse(base).endswith("Settings") for base in node.bases)
    for field in node.body
  }
  return any(
    re.search(r"\wSettings\b", ast.unparse(present(node.annotation)))
    for node in ast.walk(tree)
    if isinstance(node, ast.arg | ast.AnnAssign) and node not in declared
    if node.annotation is not None
  )


@pytest.mark.parametrize(
  "code, expected",
  [
    ("def f(c: RunSettings): ...", True),
    ("class A:\n  c: 'RunSettings | None'", True),
    ("def f(self):\n  self.c: settings.RunSettings = read()", True),
    ("class RunSettings(Settings):\n  log: LogSettings = LogSettings()", False),
    ("class A:\n  settings: Settings", False),
  ],
)
def test_sections_are_found(code, expected):
  assert takes_sections(ast.parse(code)) == expected


@pytest.mark.parametrize("package", _TAKES_SECTIONS)
def test_sections_end_where_something_is_built(package):
  folder = PACKAGE / package
  found = {
    file.relative_to(folder).as_posix()
    for file in folder.rglob("*.py")
    if takes_sections(ast.parse(file.read_text()))
  }
  assert found == _TAKES_SECTIONS[package]


def test_no_step_reads_the_settings_of_an_experiment():
  """The modules that do run before the first step."""
  folder = PACKAGE / "trainer"
  found = {
    file.name
    for file in folder.rglob("*.py")
    if re.search(r"\.settings\.(shared|system)", file.read_text())
  }
  assert found == {"build.py", "opening.py", "restore.py", "start.py"}


@pytest.mark.parametrize(
  "code, expected",
  [
    ("  random.seed(number)", True),
    ("if own:\n  np.random.seed(3)", True),
    ("rng = np.random.default_rng(seed)", True),
    ("key = jax.random.key(seed)", True),
    ("key = jax.random.key(0)", False),
    ("# Programs may call `random.seed(0)`.", False),
    ("rng = streams.generator(seed, Purpose.TIES)", False),
  ],
)
def test_generators_with_a_seed_are_found(code, expected):
  assert bool(SEEDED.search(code)) == expected


def test_runs_draw_random_numbers_by_purpose():
  """Excludes `lab/` and the sandbox, whose numbers belong to no run."""
  apart = ("lab", "randomness", "executor")
  found = {
    file.relative_to(PACKAGE).as_posix()
    for file in FILES
    if file.relative_to(PACKAGE).parts[0] not in apart
    and SEEDED.search(file.read_text())
  }
  assert found == OWN_GENERATORS


def test_nothing_but_commands_imports_the_laboratory():
  for file in FILES:
    folder = file.relative_to(PACKAGE).parts[0]
    is_command = file.parent == PACKAGE or file.name == "__main__.py"
    # `azr_jax/data/` only has the command `azr_jax.data.build_questions`.
    if folder not in ("lab", "data") and not is_command:
      for other in imports_of(file):
        inside = other.relative_to(PACKAGE).parts
        assert inside[0] != "lab", f"{file} imports {other}"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_functions_fit_a_screen_or_two(file):
  for node in ast.walk(ast.parse(file.read_text())):
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
      length = present(node.end_lineno) - node.lineno + 1
      assert length <= MAX_FUNCTION_LINES, (node.name, length)


def test_no_two_public_classes_share_a_name():
  found: dict[str, list[str]] = {}
  for file in FILES:
    for node in ast.parse(file.read_text()).body:
      if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
        found.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
  assert len(found) > 200
  assert not {name: files for name, files in found.items() if len(files) > 1}


def test_no_system_is_named_in_shared_code():
  for file in FILES:
    package = file.relative_to(PACKAGE).parts[0]
    if package in KNOW_SYSTEMS:
      continue
    for number, line in enumerate(file.read_text().splitlines(), 1):
      # The default of `config.system` is a value like any other default.
      if SYSTEM_NAME.search(line) and "setting(" not in line:
        raise AssertionError(f"{file.relative_to(ROOT)}:{number}: {line}")


def test_no_module_of_a_system_is_imported_by_shared_code():
  for file in FILES:
    if file.relative_to(PACKAGE).parts[0] in IMPORT_SYSTEMS:
      continue
    for other in imports_of(file):
      inside = other.relative_to(PACKAGE).parts
      # The files directly in `systems/` are the interface and the registry.
      assert inside[0] != "systems" or len(inside) == 2, (
        f"{file.relative_to(ROOT)} imports {other.relative_to(ROOT)}"
      )


def test_no_paper_is_named_by_a_number():
  for file in ALL_FILES:
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"\bseed 00[0-3]\b", text), file


def test_every_ignore_names_its_rule_and_its_reason():
  """For example `# noqa: BLE001 - the waiters must hear of it.`"""
  ignore = re.compile(r"#\s*(noqa|type:\s*ignore|pyrefly:\s*ignore)\b.*")
  good = re.compile(
    r"# (noqa: [A-Z]+\d+|pyrefly: ignore\[[a-z-]+\]) - \S.*[.]$"
  )
  for file in ALL_FILES:
    for line in file.read_text(encoding="utf-8").splitlines():
      found = ignore.search(line)
      assert found is None or good.fullmatch(found[0]), (file, line)


# A section of a docstring that describes arguments or attributes, and an entry
# of it: the name, the text, and its continuation lines.
_DESCRIBED = re.compile(r"^(?:Args|Attributes):\n((?: +.*\n*)+)", re.M)
_ENTRY = re.compile(r"^  \*{0,2}([\w, ]+): (.*(?:\n   .*)*)", re.M)


def repeats_name(name, text):
  """Returns whether a description only repeats the words of the name."""

  def words(text):
    found = re.findall(r"[a-z0-9]+", text.lower())
    return {word.removesuffix("s") for word in found}

  # "A" may be a symbol.
  said = words(re.sub(r"\b(a|an|its|of|the)\b", "", text))
  if len(name) == 1 and len(said) == 1:
    said = {word for word in said if word[0] != name}
  return said <= words(name) | {"config", "section", "setting"}


@pytest.mark.parametrize(
  "name, text",
  [
    ("task", "the task."),
    ("task_types", "the types of the task."),
    ("q", "queries."),
    ("settings", "its config section."),
    ("c", "the settings."),
  ],
)
def test_a_description_that_repeats_the_name_is_found(name, text):
  assert repeats_name(name, text)


@pytest.mark.parametrize(
  "name, text",
  [
    ("prefill_s", "seconds of prefill."),
    ("k", "keys of T tokens."),
    ("advantages", "A."),
    ("task", "the task to solve."),
  ],
)
def test_a_description_that_adds_a_word_is_not(name, text):
  assert not repeats_name(name, text)


def test_no_argument_is_described_by_its_name_alone():
  count = 0
  for file in ALL_FILES:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
      if isinstance(
        node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
      ):
        for section in _DESCRIBED.findall(ast.get_docstring(node) or ""):
          for name, text in _ENTRY.findall(section):
            count += 1
            assert not repeats_name(name, text), (file, node.name, name, text)
  assert count > 3000


def test_no_two_files_of_tests_share_a_name():
  """Pytest imports them as top-level modules, so one would be lost."""
  names = [path.name for path in pathlib.Path(__file__).parent.rglob("*.py")]
  assert {name for name in names if names.count(name) > 1} == {"conftest.py"}


def has_bare_array(annotation):
  """Returns whether an array type in an annotation states no shape."""
  return ARRAY.search(SHAPED.sub("", ast.unparse(annotation))) is not None


def annotations_of(body):
  """Yields (line, annotation) of functions, methods, fields and aliases."""
  for node in body:
    match node:
      case ast.FunctionDef() | ast.AsyncFunctionDef():
        # Nested functions are left out: their arrays may be parts of trees.
        arguments = [n for n in ast.walk(node.args) if isinstance(n, ast.arg)]
        for hint in (*(a.annotation for a in arguments), node.returns):
          if hint is not None:
            yield node.lineno, hint
      case ast.ClassDef():
        yield from annotations_of(node.body)
      case ast.AnnAssign():
        yield node.lineno, node.annotation
        if ast.unparse(node.annotation) == "TypeAlias":
          yield node.lineno, present(node.value)
      case ast.Assign(value=ast.Subscript() | ast.BinOp() | ast.Attribute()):
        yield node.lineno, node.value


@pytest.mark.parametrize(
  "annotation, expected",
  [
    ("jax.Array", True),
    ("'np.ndarray | None'", True),
    ('tuple[Float[Array, "B S"], Callable[[Leaf], int]]', True),
    ('Float[Array, "B S"]', False),
    ('dict[str, Float32[np.ndarray, " S"]] | None', False),
    ("np.random.Generator", False),
  ],
)
def test_array_types_without_a_shape_are_found(annotation, expected):
  tree = ast.parse(annotation, mode="eval").body
  assert has_bare_array(tree) == expected


def test_arrays_state_their_shapes():
  found = [
    f"{file.relative_to(ROOT)}:{line}: {ast.unparse(annotation)}"
    for file in FILES
    for line, annotation in annotations_of(ast.parse(file.read_text()).body)
    if has_bare_array(annotation)
  ]
  assert not found
