"""Packaging of azr_jax: dependencies, extras and console scripts."""

import pathlib
import re
import runpy

import setuptools

ROOT = pathlib.Path(__file__).parent

_FIRST_FILE = (ROOT / "azr_jax" / "__init__.py").read_text(encoding="utf-8")
VERSION = re.findall(r'^__version__ = "(.+)"$', _FIRST_FILE, re.MULTILINE)[0]
_COMMANDS = runpy.run_path(str(ROOT / "azr_jax" / "cli" / "commands.py"))

INSTALL_REQUIRES = [
  "absl-py>=2.1",
  "array_record>=0.5; platform_system != 'Windows'",
  "cloudpickle>=3.1",
  "complexipy>=4.0",
  "etils[epath]>=1.9",
  "flax>=0.12",
  "gguf>=0.10",
  "huggingface_hub>=0.30",
  "importlib_resources>=6.0",  # tensorflow-datasets imports it undeclared.
  "jax>=0.10",
  "jaxtyping>=0.2.34",
  "jinja2>=3.1",  # transformers applies chat templates by it, undeclared.
  "ml-collections>=1.0",
  "numpy>=1.26",
  "optax>=0.2.8",
  "orbax-checkpoint>=0.12",
  "radon>=6.0",
  "safetensors>=0.4.5",
  "scipy>=1.12",
  "sentencepiece>=0.2",
  "tensorboardX>=2.6",
  "tensorflow-datasets>=4.9.7",
  "transformers>=4.51",
]
SCRIPTS_REQUIRES = [  # what scripts of the Code Interpreter may import
  "networkx>=3.2",
  "pandas>=2.2",
  "sympy>=1.12",
]
GPU_COMPILE_REQUIRES = [  # XLA:GPU for `compile_check`, where no GPU is
  "jax-cuda13-pjrt>=0.10",
  "jax-cuda13-plugin>=0.10",
  "nvidia-cuda-nvcc>=13",
  "nvidia-cudnn-cu13>=9.8",
  "nvidia-nvvm>=13",
]
DOCS_REQUIRES = ["zensical>=0.0.73"]
# Environments for `azr_jax.environments`. gem-llm is a separate extra, because
# it pins reasoning-gym==0.1.23.
GEM_REQUIRES = ["gem-llm>=0.1,<0.2"]
ENVIRONMENTS_REQUIRES = [
  "reasoning-gym>=0.1.25",
  "verifiers>=0.1.10,<0.4",
]
SERVE_REQUIRES = [
  "aiohttp>=3.14",
  "backports.zstd>=1.0; python_version < '3.14'",  # compressed bodies
  "protobuf>=4.21",
]
TEST_REQUIRES = [
  *DOCS_REQUIRES,
  *SCRIPTS_REQUIRES,
  "accelerate>=1.0",  # transformers needs it to read GGUF.
  *SERVE_REQUIRES,
  "beartype>=0.20",
  "chex>=0.1.88",
  "dockerfile-parse>=2.0",
  "hypothesis>=6.100",
  "ipykernel>=6.29",
  "math-verify>=0.7",
  "matplotlib>=3.8",
  "nbclient>=0.10",
  "openai>=1.40",  # The client in the tests of `azr_jax.serve`.
  "peft==0.21.2",  # the reference of adapters and of their files
  "tinker==0.38.0",  # the clients of a server that trains
  "pyarrow>=15",  # reads Countdown's puzzles where they are parquet.
  "pyrefly==1.4.1",  # Pinned, like ruff: new versions report new errors.
  "pytest>=8.0",
  "pytest-xdist>=3.5",
  "ray>=2.40",
  "reasoning-gym>=0.1.25",
  "ruff==0.17.6",
  "torch==2.13.0",
  "trackio>=0.10",
  "uv>=0.5",  # makes the fresh environments of tests/wheel_test.py.
  "wandb>=0.19",
]

setuptools.setup(
  name="azr_jax",
  version=VERSION,
  description="Train language models with verifiable rewards, in JAX.",
  url="https://github.com/azr-jax/azr_jax",
  long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
  long_description_content_type="text/markdown",
  license="Apache-2.0",
  python_requires=">=3.11",
  # `azr_jax/configs` is a link to the configs of the top level.
  packages=setuptools.find_packages(include=["azr_jax*"]),
  package_data={
    "azr_jax": ["assets/*", "assets/*/*", "executor/*.md", "py.typed"]
  },
  install_requires=INSTALL_REQUIRES,
  extras_require={
    "tpu": ["gcsfs>=2024.6", "jax[tpu]>=0.10"],
    "cuda": ["gcsfs>=2024.6", "jax[cuda12]>=0.10"],
    "gpu_compile": GPU_COMPILE_REQUIRES,
    "docs": DOCS_REQUIRES,
    "test": TEST_REQUIRES,
    "eval": ["datasets>=3.0", "math-verify>=0.7"],
    "gym": ["reasoning-gym>=0.1.25"],
    "wandb": ["wandb>=0.19"],
    "trackio": ["trackio>=0.10"],
    "ray": ["ray>=2.40"],
    "scripts": SCRIPTS_REQUIRES,
    "serve": SERVE_REQUIRES,
    "environments": ENVIRONMENTS_REQUIRES,
    "gem": GEM_REQUIRES,
    "notebooks": ["jupyter>=1.0", "matplotlib>=3.8"],
  },
  entry_points={"console_scripts": _COMMANDS["entry_points"]()},
)
