"""Programs and inputs with odd text, or with text that leaves the call."""

from tests.executor.hostile_case import Case, fails, gives

_F = "def f(x=0, *more, **named):\n  return x"
_NO_CALL = {
  "of_two_calls": "1) or f(2",
  "of_two_statements": "1); f(2",
  "of_two_lines": "1\n)\nf(2",
  "of_a_call_of_the_result": "1)(2",
  "of_an_attribute_of_the_result": "1).real.__add__(2",
  "of_an_index_of_the_result": "[1])[0",
  "of_a_condition": "1) if 1 else f(2",
  "of_a_comparison": "1) == f(1",
  "of_a_statement": "import os",
  "of_an_assignment": "x.y = 1",
  "of_a_return": "return 1",
  "of_await": "await x",
  "of_an_open_text": "'''",
  "of_an_open_bracket": "[",
  "of_a_null_byte": "1\0",
  "of_a_null_byte_and_a_call": "1)\0f(2",
  "of_a_surrogate": "'\ud800'",
  "of_a_wide_bracket": "1\uff09 or f\uff082",
  "of_deep_brackets": "[" * 5000 + "]" * 5000,
}

INPUTS = {
  f"input_{name}": Case(_F, (text,), errors=("SyntaxError",))
  for name, text in _NO_CALL.items()
} | {
  "input_of_many_signs": Case(
    _F,
    ("-" * 100_000 + "1",),
    errors=("SyntaxError", "RecursionError", "MemoryError", "Signal11"),
  ),
  "input_with_a_comment": gives(_F, "1", inputs=("1 # ",)),
  "input_with_a_comment_and_a_bracket": gives(_F, "1", inputs=("1 #)",)),
  "input_with_a_comment_and_a_call": gives(
    _F, "1", inputs=("1 #)\n#) or f(2",)
  ),
  "input_of_a_comment_and_a_bracket": gives(_F, "0", inputs=("#)",)),
  "input_of_a_line_joined_to_the_end": gives(_F, "1", inputs=("1\\",)),
  "input_with_a_walrus": gives(_F, "1", inputs=("(f := 1)",)),
  "input_that_replaces_the_function": gives(
    _F, "1", "3", inputs=("1, globals().update(f=None)", "3")
  ),
  "input_that_imports": Case(
    _F, ("__import__('os')._exit(0)",), errors=("NoReport",)
  ),
  "input_that_opens": Case(
    _F,
    ("__import__('os').open('/etc/passwd', 0)",),
    errors=("PermissionError",),
  ),
  "input_that_is_forbidden": Case(
    _F, ("__import__('os').getpid()",), forbidden=("os",), statuses=("blocked",)
  ),
  "input_that_defines": gives(
    _F, "7", inputs=("(lambda: [f for f in [7]])()[0]",)
  ),
  "input_of_every_kind": gives(
    _F, "1", inputs=("*[1], *{2: 3}, **{'a': 4}, b=5",)
  ),
  "input_of_a_carriage_return": Case(
    _F, ("1\r) or f(2",), errors=("SyntaxError",)
  ),
  "input_of_a_form_feed": Case(_F, ("1\f) or f(2",), errors=("SyntaxError",)),
  "no_inputs": gives(_F, inputs=()),
  "many_inputs": gives(
    _F, *map(str, range(500)), inputs=tuple(map(str, range(500)))
  ),
}

PROGRAMS = {
  "deep_program": fails("x = " + "(" * 5000 + ")" * 5000),
  "deep_program_of_lists": fails("x = " + "[" * 5000 + "]" * 5000),
  "program_of_many_signs": fails("x = " + "-" * 100_000 + "1"),
  "program_of_many_blocks": fails(
    "".join("  " * i + "if 1:\n" for i in range(200)) + "  " * 200 + "pass"
  ),
  "program_of_many_attributes": Case(
    "x" + ".x" * 100_000, statuses=("error", "timeout")
  ),
  "program_with_a_null_byte": fails(
    "x = '\0'\ndef f(): return 1", "SyntaxError", "ValueError"
  ),
  "program_with_a_surrogate": fails("x = '\ud800'\ndef f(): return 1"),
  "program_with_a_cookie": gives(
    "# -*- coding: utf-7 -*-\ndef f():\n  return '+AGE-'", "'+AGE-'"
  ),
  "program_with_a_mark": Case(
    "\ufeffdef f():\n  return 1", statuses=("ok", "error"), outputs=("1",)
  ),
  "program_that_replaces_its_name": gives(
    "__name__ = '__main__'\ndef f():\n  return __name__", "'__main__'"
  ),
  "program_of_warnings": gives(
    "x = '\\d'\ny = 1 is 1\ndef f():\n  return 1", "1"
  ),
  "program_of_one_long_number": fails("x = " + "1" * 5000, "SyntaxError"),
  "program_of_nothing": fails("", "NameError"),
  "function_that_is_none": fails("f = None", "TypeError"),
  "function_that_is_a_class": fails("class f: pass", "Unserializable"),
  "function_of_the_builtins": gives("f = sum", "3", inputs=("[1, 2]",)),
  "function_that_awaits": fails("async def f(): pass", "Unserializable"),
  "module_without_a_dictionary": gives(
    "import sys\nclear = globals().clear\n"
    "def f(clear=clear):\n  clear()\n  return 1",
    "1",
  ),
}

CASES = INPUTS | PROGRAMS
