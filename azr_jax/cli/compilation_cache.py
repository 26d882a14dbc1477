"""Keeps compiled programs between processes, so that later starts are fast.

JAX's environment variables take precedence: JAX_COMPILATION_CACHE_DIR moves the
folder, also into a bucket, and JAX_ENABLE_COMPILATION_CACHE=false keeps
nothing. If JAX cannot read or write an entry, it warns and compiles.
"""

import hashlib
import os
import pathlib
import platform

import jax

_FOLDER = pathlib.Path("~/.cache/azr_jax/compiled")
_DIRECTORY = "jax_compilation_cache_dir"
# Programs that compile faster than this are not kept, in seconds.
_MIN_COMPILE_S = 0.2


def enable() -> None:
  """Keeps this process's programs; call it after joining other processes.

  Only single-process runs use the default folder. Hosts with separate folders
  would find different programs, and compile at different times.
  """
  chosen = getattr(jax.config, _DIRECTORY)
  if chosen is None and not jax.distributed.is_initialized():
    _enable_default()
  elif chosen and "://" in chosen:
    # XLA writes its own caches with its own file systems, not with ours.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")


def _enable_default() -> None:
  """Keeps programs in a folder of this type of processor, if writable."""
  try:
    folder = _FOLDER.expanduser() / _processor()
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
      return
  except (OSError, RuntimeError):  # A read-only disk, or no home.
    return
  jax.config.update(_DIRECTORY, str(folder))
  jax.config.update(
    "jax_persistent_cache_min_compile_time_secs", _MIN_COMPILE_S
  )


def _processor() -> str:
  """Returns a name of the processor and its features.

  A home folder may be shared by machines whose processors differ. Programs for
  CPUs use the features of the one that compiled them, which JAX's keys lack.
  """
  try:
    text = pathlib.Path("/proc/cpuinfo").read_text("utf-8").partition("\n\n")[0]
  except OSError:
    text = platform.processor()
  names = ("flags", "features", "model name", "vendor_id", "cpu family")
  lines = [
    line for line in text.splitlines() if line.lower().startswith(names)
  ] or [text]
  digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=6)
  return f"{platform.machine()}-{digest.hexdigest()}"
