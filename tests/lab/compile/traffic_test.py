"""Bytes that operations move, of small programs counted by hand."""

import pytest

from azr_jax.lab.compile import cost, hlo, traffic

# A stack of 4 x 256 float32 is 4096 bytes, and one of its rows 1024.
_PROGRAM = """HloModule m

%slices (stack: f32[4,256], i: s32[]) -> f32[1,256] {
  %stack = f32[4,256] parameter(0)
  %i = s32[] parameter(1)
  ROOT %row = f32[1,256] dynamic-slice(%stack, %i), dynamic_slice_sizes={1,256}
}

%converts (stack: f32[4,256], i: s32[]) -> bf16[1,256] {
  %stack.1 = f32[4,256] parameter(0)
  %i.1 = s32[] parameter(1)
  %half = bf16[4,256] convert(%stack.1)
  ROOT %row.1 = bf16[1,256] dynamic-slice(%half, %i.1)
}

%updates (stack: f32[4,256], row: f32[1,256], i: s32[]) -> f32[4,256] {
  %stack.2 = f32[4,256] parameter(0)
  %row.2 = f32[1,256] parameter(1)
  %i.2 = s32[] parameter(2)
  %twice = f32[1,256] add(%row.2, %row.2)
  ROOT %new = f32[4,256] dynamic-update-slice(%stack.2, %twice, %i.2)
}

%reads (stack: f32[4,256], i: s32[]) -> (f32[1,256], f32[4,256]) {
  %stack.3 = f32[4,256] parameter(0)
  %i.3 = s32[] parameter(1)
  %row.3 = f32[1,256] dynamic-slice(%stack.3, %i.3)
  %negated = f32[4,256] negate(%stack.3)
  ROOT %both = (f32[1,256], f32[4,256]) tuple(%row.3, %negated)
}

ENTRY %main (stack: f32[4,256], row: f32[1,256], i: s32[]) -> f32[4,256] {
  %s = f32[4,256] parameter(0)
  %r = f32[1,256] parameter(1)
  %n = s32[] parameter(2)
  %a = f32[1,256] fusion(%s, %n), kind=kLoop, calls=%slices
  %b = bf16[1,256] fusion(%s, %n), kind=kLoop, calls=%converts
  %c = f32[4,256] fusion(%s, %r, %n), kind=kLoop, calls=%updates
  %d = (f32[1,256], f32[4,256]) fusion(%s, %n), kind=kLoop, calls=%reads
  %e = f32[4,256] add(%s, %s)
  %f = f32[1,256] dynamic-slice(%s, %n)
  ROOT %g = f32[4,256] dynamic-update-slice(%s, %r, %n)
}
"""
# The 4 bytes are the index of the slice.
EXPECTED = {
  "a": 1024 + 4 + 1024,
  "b": 1024 + 4 + 512,
  "c": 1024 + 4 + 1024,
  "d": 4096 + 4 + 1024 + 4096,
  "e": 3 * 4096,
  "f": 2 * 1024,
  "g": 2 * 1024,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_slices_and_updates_move_only_their_part(name):
  program = hlo.parse(_PROGRAM)
  found = traffic.Traffic(program).bytes(program.operations[name])
  assert found == EXPECTED[name]


def test_a_program_moves_what_its_operations_move():
  found = cost.cost(hlo.parse(_PROGRAM))
  assert found.bytes == sum(EXPECTED.values())
  twice = cost.Cost()
  twice.add(found, times=2.0)
  assert twice.bytes == 2 * found.bytes
