"""Programs that forge their report, by writing it or by exiting early.

A program that lies about its output gains nothing, so some of these may be
`ok`. But no report may give a text that is not a value, more values than
inputs, or an exit instead of a timeout.
"""

from tests.executor.hostile_case import (
  UNBELIEVED,
  Case,
  body,
  ends,
  fails,
  gives,
)

_WRITE = """
import os
SEVEN = b"7\\ndone\\n"  # What `program.py` writes of a 7.
def write(data):
  for number in range(3, 16):
    try:
      os.write(number, data)
    except OSError:
      pass
"""


def _sends(*lines, errors=UNBELIEVED):
  """Returns a case whose output on the pipe must be refused."""
  return fails(f"{_WRITE}def f():{body(lines)}", *errors)


def _reports(report, errors=UNBELIEVED, runs=1):
  """Returns a case with a dishonest report and an ordinary exit."""
  lines = (f"write({report.encode()!r})", "os._exit(0)")
  return fails(f"{_WRITE}def f():{body(lines)}", *errors, runs=runs)


def _lies(*lines, inputs=("",)):
  """Returns a case that reports the value 7, which is allowed."""
  return gives(f"{_WRITE}def f(x=0):{body(lines)}", "7", inputs=inputs)


def _buys_time(data, inputs):
  """Returns a case that writes data every tenth of a second to gain time."""
  code = f"""{_WRITE}
import time
def f():
  start = time.process_time()
  for number in range(60):
    while time.process_time() < start + number / 10: pass
    write({data!r})
"""
  errors = ("JobTimeout", *UNBELIEVED)
  return Case(code, inputs, statuses=("timeout", "error"), errors=errors)


_SEVEN = "write(SEVEN)"
_GONE = "os._exit(0)"
# An input does not see the program's names, so it brings its own.
_FORGED_INPUT = f"exec({f'{_WRITE}{_SEVEN}; {_GONE}'!r}, {{}})"
_HANG = "\n  while True: pass"

PIPES = {
  "forged_output": _lies(_SEVEN, _GONE),
  "forged_byte_by_byte": _lies(
    "for byte in SEVEN: write(bytes([byte]))", _GONE
  ),
  "forged_in_the_input": _lies("pass", inputs=(_FORGED_INPUT,)),
  "report_before_the_report": _sends(_SEVEN, "return 1"),
  "report_twice": _sends(_SEVEN, _SEVEN, _GONE),
  "report_and_garbage": _sends(_SEVEN, "write(b'x')", _GONE),
  "report_and_a_crash": _sends(
    _SEVEN,
    "import faulthandler",
    "faulthandler._read_null()",
    errors=["Signal11"],
  ),
  "report_and_another_exit": _sends(_SEVEN, "os._exit(1)"),
  "report_and_the_memory": _sends(_SEVEN, "return [0] * 10**8"),
  "report_and_an_error": _sends(_SEVEN, "raise ValueError"),
  "report_and_a_hang": ends(f"{_WRITE}def f():\n  {_SEVEN}{_HANG}"),
  "report_a_closed_pipe_and_a_hang": ends(
    f"{_WRITE}def f():\n  {_SEVEN}\n  os.closerange(0, 99){_HANG}"
  ),
  "lines_that_buy_time": _buys_time(b"1\n", ("",)),
  "half_lines_that_buy_time": _buys_time(b" ", ("", "")),
  "frame_of_the_pool": _sends(
    # A zygote's header: length, number, two times, how the child ended.
    "import struct",
    "for number in range(99):",
    "  write(struct.pack('>QQddB', 5, number, 0.0, 0.0, 5) + SEVEN)",
    _GONE,
  ),
  "frame_with_a_length": _sends("write(bytes(7) + b'\\5' + SEVEN)", _GONE),
  "frame_of_a_huge_length": _sends("write(b'\\xff' * 8 + SEVEN)", _GONE),
  "exit_without_a_report": fails("import os\ndef f(): os._exit(0)", "NoReport"),
  "exit_with_another_status": fails(
    "import os\ndef f(): os._exit(3)", "NoReport"
  ),
  "exit_at_the_top_level": fails("import os\nos._exit(0)", "NoReport"),
  "exit_in_the_second_call": fails(
    "import os\ndef f(x): return x or os._exit(0)",
    "NoReport",
    inputs=("1", "0", "1"),
  ),
  "exit_by_the_c_library": fails(
    "libc = next(k for k in object.__subclasses__() if k.__name__ == 'CDLL')"
    "(None)\ndef f(): libc.exit(0)",
    "NoReport",
    "StopIteration",
  ),
  "exit_by_sys": fails("import sys\ndef f(): sys.exit(0)", "SystemExit"),
  "crash": fails(
    "import faulthandler\ndef f(): faulthandler._read_null()", "Signal11"
  ),
  "abort": fails("import os\ndef f(): os.abort()", "Signal6", "Signal11"),
  "crash_by_code": fails(
    "def f(): pass\n"
    "f.__code__ = f.__code__.replace(co_code=bytes([100, 255] * 99))"
  ),
}

_UNTRUE = {
  "of_two_values_for_one_input": "1\n2\ndone\n",
  "of_no_value": "done\n",
  "of_an_empty_value": "\ndone\n",
  "of_nothing": "",
  "of_empty_lines": "\n\n\n",
  "of_other_letters": "'\u00e9'\ndone\n",
  "of_a_tab": "1\t\ndone\n",
  "of_a_carriage_return": "1\r\ndone\r\n",
  "of_a_null_byte": "1\0\ndone\n",
  "of_an_escape": "'\x1b[2J'\ndone\n",
  "of_a_line_separator": "1\x1cdone\x1cdone\n",
  "of_a_long_value": "1" * 70_000 + "\ndone\n",
  "without_its_end": "1\n",
  "without_the_end_of_its_end": "1\ndone",
  "of_an_end_in_capitals": "1\nDONE\n",
  "of_an_end_with_an_error": "1\ndone ValueError\n",
  "of_an_end_twice": "1\ndone\ndone\n",
  "of_an_end_and_more": "1\ndone\n1",
  "of_an_error_without_a_name": "!\ndone\n",
  "of_nothing_but_an_error_without_a_name": "!\n",
  "of_an_error_with_a_long_name": f"!{'long' * 500}\ndone\n",
  "of_nothing_but_an_error_with_a_long_name": f"!{'long' * 500}\n",
  "of_an_error_with_odd_letters": "!\x07\ndone\n",
  "of_a_rule_with_odd_letters": "blocked \x07\n",
  "of_a_rule_with_a_long_name": f"blocked {'long' * 500}\n",
  "of_a_rule_without_a_name": "blocked \n",
  "of_a_timeout": "timeout TimeoutError\n",
  "of_disagreement": "nondeterministic RunsDiffer\n",
  "of_another_end": "1\nfine\n",
  "of_json": '{"status": "ok", "outputs": ["1"]}',
}
# Two runs agree on these texts, which are refused because they are no values.
_NO_VALUES = {
  "of_a_call": "f(1)",
  "of_a_call_that_exits": '__import__("os")._exit(0)',
  "of_a_name": "x",
  "of_a_product": "1*1",
  "of_two_texts": "1; 2",
  "of_a_deep_value": "[" * 9000 + "]" * 9000,
  "of_many_signs": "-" * 60_000 + "1",
  "of_a_huge_number": "1" * 60_000,
  "of_an_open_bracket": "[1",
  "of_blanks": "  ",
}

REPORTS = (
  {f"report_{name}": _reports(text) for name, text in _UNTRUE.items()}
  | {
    f"report_{name}": _reports(f"{text}\ndone\n", ["MalformedReport"], 2)
    for name, text in _NO_VALUES.items()
  }
  | {
    # The pool runs a killed child once more; the report is the same again.
    "report_of_a_kill": _reports("!Signal9\ndone\n", ["Signal9"]),
    "report_of_a_dead_worker": _reports("!WorkerDied\ndone\n", ["WorkerDied"]),
  }
)

CASES = PIPES | REPORTS
