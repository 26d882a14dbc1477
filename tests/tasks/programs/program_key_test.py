"""Program keys, which decide which tasks are held out."""

from azr_jax.tasks.programs.program_key import program_key

# Held-out tasks were chosen by key, so every Python version must give this key.
KEY = "761827a35c9e07c56ffd187fca40ee82fc7b78628eb09dc6c0a9d4b9cc2d7774"


def test_every_python_finds_the_same_key():
  code = "def f(x: int = None):\n  return [x, 1, *x]"
  assert program_key(code) == KEY
  renamed = "def g(y: int = None):\n  # A comment.\n  return [y, 1, *y]"
  assert program_key(renamed) == KEY
