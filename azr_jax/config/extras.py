"""Optional packages, their extras, and the command that installs them.

The executor imports this module, so it imports only the standard library.
"""

# Import name -> extra in setup.py. gcsfs is missing on purpose: every device's
# extra includes it, and installing another device's extra would replace JAX.
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
  """Returns an error line that says how to install a missing module."""
  package = module.partition(".")[0]
  return f"package {package!r} is missing: {install_command(package)}"


def install_command(module: str) -> str:
  """Returns the shell command that installs a module's package."""
  package = module.partition(".")[0]
  if package in EXTRAS:
    return f"pip install 'azr_jax[{EXTRAS[package]}]'"
  return f"pip install {package}"
