"""The wheel: its contents, and training without a clone."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import tokenizers
import training
import transformers
import yaml
from safetensors import numpy as safetensors

import azr_jax
from azr_jax.cli import commands as cli_commands

# A user's config file, in a folder with the same name as ours.
USERS = """
import ml_collections
def get_config(variant=""):
  raise RuntimeError("the user's own configs/mine.py")
"""
NEWCOMER = pathlib.Path(__file__).with_name("newcomer_program.py")
# uv prints this without a network.
_NO_NETWORK = "error sending request"
CHAT = (
  "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
  "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def uv(*arguments):
  """Runs uv. Skips the test for developers without a network."""
  done = subprocess.run(
    [sys.executable, "-m", "uv", *map(str, arguments)],
    capture_output=True,
    text=True,
    check=False,
  )
  if _NO_NETWORK in done.stderr and "CI" not in os.environ:
    pytest.skip(f"no network, so no fresh environment: {done.stderr[-300:]}")
  assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(name="wheel", scope="session")
def build_wheel(tmp_path_factory):
  """The wheel of this repository, built from a copy of git's files."""

  def make(folder):
    names = subprocess.run(
      ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
      cwd=training.ROOT,
      capture_output=True,
      check=True,
    ).stdout
    # A build writes into its source folder.
    for name in filter(None, map(os.fsdecode, names.split(b"\0"))):
      if (training.ROOT / name).exists():
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(
          training.ROOT / name, folder / "source" / name, follow_symlinks=False
        )
    uv("build", "--quiet", "--wheel", "--out-dir", folder, folder / "source")

  folder = training.make_once(tmp_path_factory, "wheel", make)
  (path,) = folder.glob("*.whl")
  return path


def write_chat_model(folder):
  """Writes a one-layer Llama with random weights and a chat template."""
  bpe = tokenizers.ByteLevelBPETokenizer()
  special = ["<|im_start|>", "<|im_end|>"]
  bpe.train_from_iterator([], 258, special_tokens=special, show_progress=False)
  transformers.PreTrainedTokenizerFast(
    tokenizer_object=bpe._tokenizer, eos_token=special[1], chat_template=CHAT
  ).save_pretrained(folder)
  vocabulary, width, hidden = bpe.get_vocab_size(), 16, 32
  config = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": vocabulary,
    "hidden_size": width,
    "intermediate_size": hidden,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "eos_token_id": 1,
  }
  (folder / "config.json").write_text(json.dumps(config))
  shapes = {f"self_attn.{name}_proj": (width, width) for name in "qkvo"} | {
    "mlp.gate_proj": (hidden, width),
    "mlp.up_proj": (hidden, width),
    "mlp.down_proj": (width, hidden),
    "input_layernorm": (width,),
    "post_attention_layernorm": (width,),
  }
  shapes = {f"layers.0.{name}": shape for name, shape in shapes.items()}
  shapes |= {"embed_tokens": (vocabulary, width), "norm": (width,)}
  draw = np.random.default_rng(0)
  weights = {
    f"model.{name}.weight": draw.normal(1, 0.1, shape).astype(np.float32)
    for name, shape in shapes.items()
  }
  safetensors.save_file(weights, folder / "model.safetensors")


def test_a_newcomer_needs_no_extra(wheel, tmp_path):
  """After a plain install, all commands start and a chat model trains."""
  environment, model = tmp_path / "environment", tmp_path / "model"
  uv("venv", "--quiet", "--python", sys.executable, environment)
  python = environment / "bin" / "python"
  uv("pip", "install", "--quiet", "--python", python, wheel)
  write_chat_model(model)
  elsewhere = tmp_path / "elsewhere"
  elsewhere.mkdir()
  done = subprocess.run(
    [str(python), str(NEWCOMER), str(model)],
    cwd=elsewhere,
    env=outside_the_clone() | {"XLA_FLAGS": training.FAST_COMPILATION},
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-3000:]
  found = json.loads(done.stdout)
  assert found["package"].startswith(str(environment))
  assert pathlib.Path(found["package"]).with_name("py.typed").exists()
  assert "PyTorch was not found" not in done.stderr
  # These modules say which extra has the package, or nothing imports them.
  assert found["missing"] == {
    "azr_jax.environments.verifiers_kit": "httpx",
    "azr_jax.lab.bench.sweep": "matplotlib",
    "azr_jax.lab.bench.torch_decoder": "torch",
    "azr_jax.lab.bench.transformers_baseline": "torch",
    "azr_jax.serving.command": "aiohttp",
    "azr_jax.serving.http_server": "aiohttp",
    "azr_jax.serving.tinker.command": "aiohttp",
    "azr_jax.serving.tinker.routes": "aiohttp",
  }
  commands = found["commands"]
  failed = {name: text for name, (code, text) in commands.items() if code}
  assert not failed
  assert {name.removesuffix(" --help") for name in commands} >= {
    f"azr-{name}" for name in cli_commands.COMMANDS
  }
  assert commands["version"][1] == f"azr_jax {azr_jax.__version__}\n"
  assert "step 1/1" in commands["train"][1]
  assert "| 0.0 +- 0.0 |" in commands["evaluate"][1]
  assert "step 1/1" in commands["api.train"][1]


def outside_the_clone():
  """The environment of a command that must not find the clone."""
  return {
    key: value
    for key, value in training.environment().items()
    if key not in ("PYTHONPATH", "VIRTUAL_ENV")
  }


@pytest.mark.slow
def test_the_wheel_has_one_package_with_all_its_files(wheel):
  names = zipfile.ZipFile(wheel).namelist()
  tops = {name.partition("/")[0] for name in names}
  assert tops == {"azr_jax", f"azr_jax-{azr_jax.__version__}.dist-info"}
  package = training.ROOT / "azr_jax"
  tracked = subprocess.run(
    ["git", "ls-files", "azr_jax", "configs"],
    cwd=training.ROOT,
    capture_output=True,
    text=True,
    check=True,
  ).stdout.split()
  want = {re.sub("^configs/", "azr_jax/configs/", name) for name in tracked}
  assert {name for name in names if "dist-info" not in name} == want - {
    "azr_jax/configs"
  }
  assert (package / "configs").is_symlink()


@pytest.mark.slow
def test_the_wheel_trains_where_there_is_no_clone(wheel, tmp_path):
  environment = tmp_path / "environment"
  uv("venv", "--quiet", "--python", sys.executable, environment)
  # The dependencies come from this environment, but not the package.
  site = next((environment / "lib").glob("python*/site-packages"))
  (pathlib.Path(site) / "dependencies.pth").write_text(
    os.pathsep.join(path for path in sys.path if "site-packages" in path) + "\n"
  )
  python = environment / "bin" / "python"
  uv("pip", "install", "--quiet", "--no-deps", "--python", python, wheel)
  folder = tmp_path / "elsewhere"
  (folder / "configs").mkdir(parents=True)
  (folder / "configs" / "__init__.py").write_text("")
  (folder / "configs" / "mine.py").write_text(USERS)

  def run(name, *arguments):
    return subprocess.run(
      [str(environment / "bin" / name), *arguments],
      cwd=folder,
      env=outside_the_clone(),
      capture_output=True,
      text=True,
      check=False,
    )

  where = run("python", "-c", "import azr_jax; print(azr_jax.__file__)")
  assert where.stdout.strip().startswith(str(environment))
  done = run(
    "azr-train",
    "--config=configs/azr.py:tiny",
    f"--workdir={tmp_path / 'run'}",
    "--config.train.steps=2",
    "--config.azr.prompts=4",
    "--config.azr.seed_factor=1",
  )
  assert done.returncode == 0, done.stderr[-3000:]
  lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
  assert [json.loads(line)["step"] for line in lines] == [1, 2]
  # The user's own configs are used.
  mine = run("azr-train", "--config=configs/mine.py", "--workdir=/dev/null/x")
  assert "the user's own configs/mine.py" in mine.stderr
  own = run("python", "-c", "import configs; print(configs.__file__)")
  assert own.stdout.strip() == str(folder / "configs" / "__init__.py")
  out = tmp_path / "model"
  exported = run("azr-export", f"--workdir={tmp_path / 'run'}", f"--out={out}")
  assert exported.returncode == 0, exported.stderr[-3000:]
  assert "| steps | 2 |" in (out / "README.md").read_text()


def test_version_citation_and_changelog_agree():
  citation = yaml.safe_load((training.ROOT / "CITATION.cff").read_text())
  assert citation["version"] == azr_jax.__version__
  assert citation["cff-version"] == "1.2.0" and citation["authors"]
  papers = (training.ROOT / "docs" / "papers.md").read_text()
  for reference in citation["references"]:
    assert reference["title"] in papers and reference["url"] in papers
  changes = (training.ROOT / "CHANGELOG.md").read_text()
  heads = re.findall(r"^## (.+)$", changes, re.MULTILINE)
  is_open = "dev" in azr_jax.__version__
  assert heads[0] == ("Unreleased" if is_open else azr_jax.__version__)
