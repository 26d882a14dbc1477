"""The packages that come with an extra, and the command that installs them.

This module uses the standard library alone, because the executor does.
"""

# Name in an import -> extra in setup.py. gcsfs is not here: the extra of each
# kind of device has it, and another device's extra would replace JAX.
EXTRAS = {
  "aiohttp": "serve",
  "datasets": "eval",
  "gem": "gem",
  "httpx": "environments",
  "jax_cuda13_plugin": "gpu_compile",
  "libtpu": "tpu",
  "math_verify": "eval",
  "matplotlib": "notebooks",
  "networkx": "scripts",
  "pandas": "scripts",
  "ray": "ray",
  "reasoning_gym": "gym",
  "sympy": "scripts",
  "torch": "test",
  "trackio": "trackio",
  "verifiers": "environments",
  "wandb": "wandb",
}


def missing(module: str) -> str:
  """Returns a line about a module that is not installed, with its remedy."""
  package = module.partition(".")[0]
  return f"package {package!r} is missing: {install_command(package)}"


def install_command(module: str) -> str:
  """Returns the shell command that installs the package of a module."""
  package = module.partition(".")[0]
  if package in EXTRAS:
    return f"pip install 'azr_jax[{EXTRAS[package]}]'"
  return f"pip install {package}"
