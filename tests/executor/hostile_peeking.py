"""Programs that look for a secret, and for traces of other programs.

The trusted side knows a text that begins with NEEDLE (`SECRET`). It is in that
side's environment, in the job's id and, in some cases, in the report of a
program that ran before. No program may find it.
"""

from tests.executor.hostile_case import Case, denied, gives

_HUNT = """
import gc, os, re, sys
NEEDLE = "-".join(["azr", "secret", ""])

def texts(roots):
  seen, todo = set(), list(roots)
  while todo:
    value = todo.pop()
    if id(value) in seen:
      continue
    seen.add(id(value))
    if type(value) is str:
      yield value
    elif type(value) in (bytes, bytearray, memoryview):
      yield bytes(value).decode("latin-1")
    else:
      todo += gc.get_referents(value)

def found(roots):
  return any(NEEDLE in text and text != NEEDLE for text in texts(roots))

def frames(frame):
  while frame:
    yield from (dict(frame.f_locals), frame.f_globals, frame.f_builtins, frame)
    frame = frame.f_back

def classes():
  seen, todo = set(), [object]
  while todo:
    for kind in type.__subclasses__(todo.pop()):
      if kind not in seen:
        seen.add(kind)
        todo.append(kind)
  return seen
"""
_RETURN = "def f(x=None):\n  return x"
# The search must stay within the heap; otherwise it crashes. The addresses of
# the classes that were created at run time, which have bit 9 of the flags, tell
# where the heap begins.
_RAW_MEMORY = """
def f(x=None):
  library = next(k for k in object.__subclasses__() if k.__name__ == "CDLL")
  kinds = library.__init__.__globals__
  libc, size = library(None), kinds["c_size_t"]
  libc.sbrk.restype = libc.memmem.restype = kinds["c_void_p"]
  libc.memmem.argtypes = [size, size, kinds["c_char_p"], size]
  top = libc.sbrk(size(0))
  heap = [id(k) for k in object.__subclasses__() if k.__flags__ & 1 << 9]
  low = min(address for address in heap if top - 2**26 < address < top)
  needle = b"-".join([b"azr", b"secret", b""])
  at = libc.memmem(low, top - low, needle + bytes([x or 0]), len(needle))
  return at is not None
"""
# Names that variables with the expected answer might have.
_TELLING = "gold reference secret expected hidden solution target".split()


def _hunts(roots, before="", found="False", **options):
  code = f"{_HUNT}def f(x=None):\n  return found({roots})"
  runs = 2 if before else 1  # Either zygote may hold traces of the program.
  return gives(code, found, before=before, runs=runs, **options)


SECRET = {
  # The secret is an input here, which shows that the hunt can succeed.
  "hunt_that_succeeds": _hunts(
    "frames(sys._getframe())", found="True", inputs=("'SECRET'",)
  ),
  "secret_among_all_objects": _hunts("gc.get_objects()"),
  "secret_among_referrers": _hunts(
    "[gc.get_referrers(*gc.get_objects()[:99]), gc.get_referrers(os)]"
  ),
  "secret_in_frames": _hunts("frames(sys._getframe())"),
  "secret_in_code": _hunts(
    "[frame.f_code for frame in frames(sys._getframe())"
    " if hasattr(frame, 'f_code')]"
  ),
  "secret_in_modules": _hunts("sys.modules.values()"),
  "secret_in_classes": _hunts("classes()"),
  "secret_in_the_environment": _hunts("[dict(os.environ), os.environb]"),
  "secret_in_arguments": _hunts("[sys.argv, sys.orig_argv]"),
  "secret_in_a_traceback": gives(
    f"{_HUNT}def f():\n  try: raise ValueError\n"
    "  except ValueError as error:\n"
    "    return found(frames(error.__traceback__.tb_frame))",
    "False",
  ),
  "names_that_promise_an_answer": gives(
    f"{_HUNT}WORDS = {_TELLING!r}\n"
    "def f():\n  return sorted(\n"
    "    name for place in frames(sys._getframe()) if type(place) is dict\n"
    "    for name in place if name in WORDS)",
    "[]",
  ),
  "names_in_modules_that_promise_an_answer": gives(
    f"{_HUNT}WORDS = {_TELLING!r}\n"
    "def f():\n  return sorted(\n"
    "    name for module in [*sys.modules.values()] if module\n"
    "    for name in vars(module) if name in WORDS)",
    "[]",
  ),
  "secret_in_the_environment_file": denied(
    "io.open('/proc/TRAINER/environ', 'rb').read()", "io"
  ),
}

NEIGHBOURS = {
  "report_of_the_program_before_in_frames": _hunts(
    "frames(sys._getframe())", before=_RETURN
  ),
  "report_of_the_program_before_in_objects": _hunts(
    "gc.get_objects()", before=_RETURN
  ),
  "input_of_the_program_before": _hunts(
    "frames(sys._getframe())", before="def f(x):\n  return 1"
  ),
  "code_of_the_program_before": _hunts(
    "frames(sys._getframe())", before="def f(x):\n  return 'SECRET'[:0]"
  ),
  "program_at_the_same_time": gives(
    f"{_HUNT}def f(own):\n  return sorted(\n"
    "    {name for text in texts(frames(sys._getframe()))\n"
    "     for name in re.findall('azr-copy-[0-9]+', text)} - {own})",
    "[]",
    inputs=("'azr-copy-COPY'",),
    copies=12,
  ),
  "other_inputs": gives(
    f"{_HUNT}def f(own):\n  return sorted(\n"
    "    {name for text in texts(frames(sys._getframe()))\n"
    "     for name in re.findall('azr-input-[0-9]+', text)} - {own})",
    *("[]", "[]", "[]"),
    inputs=("'azr-input-1'", "'azr-input-2'", "'azr-input-3'"),
  ),
  "limits_that_tell_a_validation": gives(
    "import sys\ndef f():\n  frame, seen = sys._getframe().f_back, []\n"
    "  while frame.f_locals is not frame.f_globals:\n"
    "    seen += [v for v in frame.f_locals.values() if type(v) is float]\n"
    "    seen += [v for v in frame.f_locals.values() if type(v) is list and v\n"
    "             and type(v[0]) is int]\n"
    "    frame = frame.f_back\n  return seen",
    "[]",
  ),
  "raw_memory": Case(
    _RAW_MEMORY,
    runs=2,
    before="def f(x):\n  return [x] * 99",
    statuses=("ok", "error"),
    errors=("StopIteration",),
    outputs=("False",),
  ),
}

SURROUNDINGS = {
  "environment": gives(
    "import os\ndef f():\n  return sorted(os.environ)",
    "['LC_ALL', 'PATH', 'PYTHONHASHSEED', 'TZ']",
  ),
  "environment_by_the_c_library": gives(
    "import os, posix\ndef f():\n  return len(posix.environ), os.environ['TZ']",
    "(4, 'UTC')",
  ),
  "privileges": gives("import os\ndef f():\n  return os.getuid() > 0", "True"),
  "user_name": denied("os.getlogin()", "os", ("PermissionError", "OSError")),
  "groups": denied("os.getgroups()"),
  "host_name_of_the_platform": Case(
    "import platform\ndef f():\n  return platform.uname().node == 'HOST'",
    statuses=("ok", "error"),
    errors=("PermissionError", "ModuleNotFoundError"),
    outputs=("False",),
  ),
  "load": denied("os.getloadavg()", "os", ("PermissionError", "OSError")),
}

CASES = SECRET | NEIGHBOURS | SURROUNDINGS
