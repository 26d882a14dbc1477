"""A hundred proposed environments that should not be trusted, with verdicts.

Each replaces one part of a valid environment. The verdict is the reason of the
rejection, or ADMITTED. A comment says why an odd one is admitted.
"""

# ruff: noqa: E501
# fmt: off

from azr_jax.tasks.programs import prompts

ADMITTED = "admitted"
HEAD = "import random"
GENERATE = """def generate(seed):
  rng = random.Random(seed)
  return [rng.randrange(100) for _ in range(4)]"""
SOLVE = """def solve(instance):
  return max(instance)"""
SCORE = """def score(instance, answer):
  return answer == max(instance)"""
MESSAGE = "Find the largest number."


def code(head=HEAD, generate=GENERATE, solve=SOLVE, score=SCORE):
  """Returns a program; each part is replaced by the given text."""
  return "\n\n".join(part for part in (head, generate, solve, score) if part)


def _generate(body):
  lines = body.replace("\n", "\n  ")
  return {"generate": f"def generate(seed):\n  {lines}"}


def _solve(body):
  lines = body.replace("\n", "\n  ")
  return {"solve": f"def solve(instance):\n  {lines}"}


def _score(body):
  lines = body.replace("\n", "\n  ")
  return {"score": f"def score(instance, answer):\n  {lines}"}


_DRAW = "[random.Random(seed).randrange(10**6), seed % 7]"

# (name, verdict, replaced parts)
PROGRAMS = (
  ("as it is", ADMITTED, {}),
  # Instances.
  ("raises", "error", _generate("raise ValueError(seed)")),
  ("raises for some", "error", _generate("return [1 // (seed % 2), seed]")),
  ("assertion", "error", _generate("assert seed < 0\nreturn [seed]")),
  ("endless", "timeout", _generate("while True: pass")),
  ("endless for some", "timeout", _generate("while seed % 3 == 0: pass\nreturn [seed]")),
  ("sleeps", "blocked", _generate("import time\ntime.sleep(9)\nreturn [seed]")),
  ("recursion", "error", _generate("return generate(seed + 1)")),
  ("memory", "error", _generate("return [0] * 10**12")),
  ("huge number", "error", _generate("return 7 ** 99999 + seed")),
  ("long text", "oversize", _generate("return str(seed) * 2000")),
  ("endless text", "error", _generate("return str(seed) * 10**5")),
  ("None", "no_output", _generate("pass")),
  ("None for some", "no_output", _generate("return [seed] if seed % 2 else None")),
  ("constant", "constant", _generate("return [3, 1, 2]")),
  ("two instances", "constant", _generate("return [seed % 2, 5]")),
  ("four instances", "constant", _generate("return [seed % 4, 1]")),
  ("function", "error", _generate("return lambda: seed")),
  ("object", "error", _generate("class A: pass\nreturn A()")),
  ("generator", "error", _generate("yield seed")),
  ("iterator", "error", _generate("return iter([seed])")),
  ("coroutine", "error", {"generate": "async def generate(seed):\n  return [seed]"}),
  ("no argument", "error", {"generate": "def generate():\n  return [1]"}),
  ("two arguments", "error", {"generate": "def generate(seed, size):\n  return [1]"}),
  ("cyclic", "error", _generate("a = [seed]\na.append(a)\nreturn a")),
  ("deep", "error", _generate("a = [seed]\nfor _ in range(500): a = [a]\nreturn a")),
  ("unseeded", "nondeterministic", _generate("return [random.random(), 1]")),
  ("system random", "error", _generate("return [random.SystemRandom().random(), 1]")),
  ("hash of text", "nondeterministic", _generate("return [hash(str(seed)), 1]")),
  ("address", "nondeterministic", _generate("return [id(object()) // 16, seed]")),
  ("order of a set", "nondeterministic", _generate("return [ord(c) for c in {'a', 'b', 'c', 'd', 'e', 'f', str(seed)}.copy() if len(c) == 1]")),
  ("clock", "blocked", _generate("import time\nreturn [time.time(), seed]")),
  ("date", "blocked", _generate("from datetime import datetime\nreturn [datetime.now().second, seed]")),
  ("hashlib", "blocked", _generate("import hashlib\nreturn [hashlib.md5(bytes(seed % 9)).digest()[0]]")),
  ("process", "blocked", _generate("import subprocess\nreturn subprocess.run('ls').returncode")),
  ("thread", "blocked", _generate("import threading\nreturn threading.active_count()")),
  # The sandbox starts no shell, so the status is that of a failure.
  ("shell", ADMITTED, _generate("import os\nreturn [os.system('id'), seed]")),
  ("fork", "error", _generate("import os\nreturn [os.fork(), seed]")),
  ("signal", "error", _generate("import os, signal\nos.kill(os.getppid(), 9)\nreturn [seed]")),
  ("socket", "error", _generate("import socket\nsocket.create_connection(('1.1.1.1', 80))\nreturn [seed]")),
  ("file", "error", _generate("return [len(open('/etc/passwd').read()), seed]")),
  ("folder", "error", _generate("import os\nreturn [*os.listdir('/'), str(seed)]")),
  ("writes", "error", _generate("import pathlib\npathlib.Path('/tmp/x').write_text('x')\nreturn [seed]")),
  ("input", "error", _generate("return [input(), seed]")),
  ("exit", "error", _generate("raise SystemExit(0)")),
  ("hard exit", "error", _generate("import os\nos._exit(0)")),
  ("environment", "blocked", _generate("import os\nreturn [*os.environ, str(seed)]")),
  ("import by name", "blocked", _generate("return [__import__('time').time(), seed]")),
  ("evaluates", ADMITTED, _generate(f"return eval('{_DRAW}')")),
  ("prints", ADMITTED, _generate(f"print('x' * 10**6)\nreturn {_DRAW}")),
  # Calls never share state: the counter is 1 in each.
  ("counts its calls", "constant", _generate("calls.append(1)\nreturn [len(calls), 5]") | {"head": "calls = []"}),
  ("patches random", ADMITTED, _generate(f"random.seed = None\nreturn {_DRAW}")),
  ("not a number", ADMITTED, _generate("return [float('nan'), seed]") | _solve("return instance[1]") | _score("return answer == instance[1]")),
  ("bytes", ADMITTED, _generate("return seed.to_bytes(5, 'big')")),
  ("dictionary", ADMITTED, _generate("return {seed: 1, seed + 1: 2}")),
  ("set", ADMITTED, _generate("return {seed, seed + 1}")),
  # The solver sees the answer, so it is always right: no reward.
  ("shows the answer", ADMITTED, _generate("return [seed]")),
  # Answers.
  ("solve raises", "error", _solve("return instance['a']")),
  ("solve raises for some", "error", _solve("return max(instance) // (instance[0] % 2)")),
  ("solve is endless", "timeout", _solve("while True: pass")),
  ("solve gives None", "no_output", _solve("pass")),
  ("solve gives None for some", "no_output", _solve("return max(instance) if instance[0] % 2 else None")),
  ("one answer", "constant", _solve("return 7")),
  ("solve is random", "nondeterministic", _solve("return random.random()")),
  ("solve gives a function", "error", _solve("return max")),
  ("solve gives a long text", "oversize", _solve("return str(max(instance)) * 5000")),
  ("solve changes the instance", ADMITTED, _solve("instance.sort()\nreturn instance.pop()")),
  # Functions run in processes of their own, so score finds no memory.
  ("remembers in a global", "oracle", _solve("memory['a'] = max(instance)\nreturn memory['a']") | _score("return answer == memory.get('a')") | {"head": "import random\nmemory = {}"}),
  ("remembers in an attribute", "oracle", _solve("solve.last = max(instance)\nreturn solve.last") | _score("return answer == getattr(solve, 'last', None)")),
  ("solve is wrong", "oracle", _solve("return min(instance)")),
  ("solve is wrong for some", "oracle", _solve("return max(instance[:3])")),
  ("solve gives another type", "oracle", _solve("return str(max(instance))")),
  ("identity", "lenient", _solve("return instance") | _score("return answer == instance")),
  ("coroutine solves", "error", {"solve": "async def solve(instance):\n  return max(instance)"}),
  # Scores.
  ("always right", "lenient", _score("return 1")),
  ("always True", "lenient", _score("return True")),
  ("always wrong", "oracle", _score("return 0")),
  ("nearly right", "oracle", _score("return 0.99 * (answer == max(instance))")),
  ("any number", "lenient", _score("return isinstance(answer, int)")),
  ("anything but None", "lenient", _score("return answer is not None")),
  ("None too", "lenient", _score("return answer in (None, max(instance))")),
  ("too low is fine", "lenient", _score("return answer <= 99")),
  ("above 1", "score", _score("return 2 * (answer == max(instance))")),
  ("negative", "score", _score("return 1 if answer == max(instance) else -1")),
  ("text", "score", _score("return 'yes'")),
  ("no score", "score", _score("pass")),
  ("not-a-number score", "score", _score("return float('nan')")),
  ("infinite", "score", _score("return float('inf')")),
  ("complex", "score", _score("return complex(answer == max(instance))")),
  ("list", "score", _score("return [1]")),
  ("negative numbers too", "lenient", _score("return answer == max(instance) or answer < 0")),
  ("numbers that begin with 1", "lenient", _score("return answer == max(instance) or str(answer).startswith('1')")),
  ("long texts too", "lenient", _score("return isinstance(answer, str) and len(answer) > 9 or answer == max(instance)")),
  # Can only be guessed, so it is solved no more often than guessing does.
  ("unrelated to the message", ADMITTED, _solve("return 20 + sum(instance) * 7919 // 13 % 5") | _score("return answer == 20 + sum(instance) * 7919 // 13 % 5")),
  # The calls of a program that could tell them apart have processes of their own.
  ("exits for None", "lenient", _score("import os\nif answer is None: os._exit(0)\nreturn isinstance(answer, int)")),
  ("counts answers", "lenient", _score("if answer is None: random.seen = 1\nreturn answer is not None and not hasattr(random, 'seen')")),
  ("any subset", "lenient", _score("return all(x in instance for x in answer)") | _solve("return instance[:2]")),
  ("yes or no", "constant", _solve("return sum(instance) % 2 == 0") | _score("return answer is (sum(instance) % 2 == 0)")),
  ("score raises", "error", _score("raise KeyError")),
  ("raises for wrong ones", ADMITTED, _score("assert answer == max(instance)\nreturn 1")),
  ("endless for wrong ones", "timeout", _score("while answer != max(instance): pass\nreturn 1")),
  ("random score", "nondeterministic", _score("return random.random()")),
  ("random for wrong ones", "nondeterministic", _score("return 1 if answer == max(instance) else random.random()")),
  ("partial marks", ADMITTED, _score("return 1 / (1 + abs(answer - max(instance)))")),
  # No test finds a secret; a solver that knew it would earn the proposer nothing.
  ("password", ADMITTED, _score("return answer in (max(instance), 'sesame')")),
  ("score changes the instance", ADMITTED, _score("instance.sort()\nreturn answer == instance.pop()")),
  ("no argument for the answer", "error", {"score": "def score(instance):\n  return 1"}),
  # The whole program.
  ("syntax error", "error", {"head": "import random\n)"}),
  ("top level raises", "error", {"head": "1 / 0"}),
  ("top level is endless", "timeout", {"head": "while True: pass"}),
  ("third-party import", "error", {"head": "import random, numpy"}),
  ("too long", "oversize", {"head": "import random\n" + "# x\n" * 2500}),
)


def _response(*fences):
  body = "\n".join(prompts.fence(*pair) for pair in fences)
  return f"why</think>\n<answer>{body}</answer>"


_WHOLE = code()
# (name, response): none of them is a program and a message.
MALFORMED = (
  ("empty", ""),
  ("no message", _response(("python", _WHOLE))),
  ("blank message", _response(("python", _WHOLE), ("message", " "))),
  ("two messages", _response(("python", _WHOLE), ("message", "a"), ("message", "b"))),
  ("no program", _response(("message", MESSAGE))),
  ("two programs", _response(("python", _WHOLE), ("python", _WHOLE), ("message", MESSAGE))),
  ("no generate", _response(("python", code(generate="")), ("message", MESSAGE))),
  ("no solve", _response(("python", code(solve="")), ("message", MESSAGE))),
  ("no score", _response(("python", code(score="")), ("message", MESSAGE))),
  ("lambda", _response(("python", code(score="score = lambda i, a: 1")), ("message", MESSAGE))),
  ("message with the program", _response(("python", _WHOLE), ("message", SOLVE))),
  ("a triplet", _response(("python", "def f(x):\n  return x"), ("input", "1"))),
)
