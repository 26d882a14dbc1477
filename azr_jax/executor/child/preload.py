"""The modules that programs may import, and the function that loads them.

A program cannot read files, so it can import only modules that its zygote has
loaded. The lists include modules that others load lazily (`_strptime`, codecs).
Importing any other module raises ModuleNotFoundError in the program.
"""

import codecs
import contextlib
import importlib
import importlib.util
import os
from collections.abc import Iterator

MODULES = (
  "__future__ abc array base64 binascii bisect calendar cmath collections "
  "collections.abc contextlib copy dataclasses datetime _strptime decimal "
  "difflib enum fractions functools graphlib hashlib heapq itertools json "
  "keyword math numbers operator pprint queue random re statistics string "
  "struct textwrap time traceback types typing unicodedata zlib"
).split()
# Modules that only some Python versions load lazily. `_pylong` (3.12 and later)
# converts long integers.
VERSION_DEPENDENT = ("_pylong",)
CODECS = (
  "ascii latin-1 utf-7 utf-8 utf-8-sig utf-16 utf-16-le utf-16-be utf-32 "
  "cp437 cp1251 cp1252 iso8859-2 iso8859-15 koi8-r shift_jis euc_jp gb2312 "
  "gbk gb18030 big5 euc_kr idna punycode unicode_escape raw_unicode_escape "
  "hex base64 rot13"
).split()


def load() -> None:
  """Imports every listed module and codec."""
  present = filter(importlib.util.find_spec, VERSION_DEPENDENT)
  for name in (*MODULES, *present):
    importlib.import_module(name)
  for name in CODECS:
    codecs.lookup(name)


@contextlib.contextmanager
def without_fork_hooks() -> Iterator[None]:
  """Ignores the hooks that modules register to run in each forked child.

  `random` uses one to reseed itself, and `threading` to repair its locks. They
  take a third of a fork's time, and a child has one thread. Without them,
  `random` produces the same numbers in all children of a zygote, but different
  numbers in another zygote.
  """
  register, os.register_at_fork = os.register_at_fork, _ignore
  yield
  os.register_at_fork = register


def _ignore(**hooks: object) -> None:
  del hooks
