"""Tests the collectives that are counted in programs compiled by XLA."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from azr_jax.lab.compile import collectives, cost, hlo
from azr_jax.parallel import mesh as mesh_lib


@pytest.fixture(scope="module")
def mesh():
  return mesh_lib.make_mesh({"data": 8, "fsdp": 1, "tensor": 1})


def compiled(function, mesh, shape):
  """Returns the text of a function compiled for an array on eight devices."""
  shard = jax.shard_map(
    function,
    mesh=mesh,
    in_specs=PartitionSpec("data"),
    out_specs=PartitionSpec("data"),
  )
  sharding = NamedSharding(mesh, PartitionSpec("data"))
  argument = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)
  return jax.jit(shard).lower(argument).compile().as_text()


def totals(text):
  """Returns the collectives of a program by kind."""
  return collectives.totals(cost.cost(hlo.parse(text)).at({}).collectives)


def test_nothing_moves_without_a_collective(mesh):
  assert totals(compiled(lambda x: x * 2, mesh, (8, 4))) == {}


def test_loops_of_known_length_are_multiplied_out(mesh):
  def twice_five(x):
    def inner(_, x):
      return jax.lax.psum(x, "data") * jnp.ones_like(x)

    def outer(_, x):
      return jnp.sin(jax.lax.fori_loop(0, 5, inner, x))

    return jax.lax.fori_loop(0, 2, outer, x)

  size = 10 * 4 * 4.0
  sent = 2 * size * 7 / 8  # An all-reduce around a ring of eight devices.
  assert totals(compiled(twice_five, mesh, (8, 4))) == {
    "all-reduce": collectives.Total(10, 0, size, sent)
  }


def test_a_gather_counts_its_result(mesh):
  def gather(x):
    whole = jax.lax.all_gather(x, "data", tiled=True)
    return x + jnp.sum(jnp.sin(whole)) + whole[:1]

  size = 8 * 64 * 4.0
  assert totals(compiled(gather, mesh, (8, 64))) == {
    "all-gather": collectives.Total(1, 0, size, size * 7 / 8)
  }


def test_a_computation_of_another_core_ends_where_it_says_so():
  """A computation on a TPU's sparse core does not hide the next one."""
  program = hlo.parse(
    """HloModule m

%on_core (x: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  ROOT %y = f32[4] negate(%x)
}, execution_thread="sparsecore"

%fused (a: f32[4]) -> f32[4] {
  ROOT %b = f32[4] negate(%a)
}

ENTRY %main (p: f32[4]) -> f32[4] {
  ROOT %f = f32[4] fusion(%p), kind=kLoop, calls=%fused
}
"""
  )
  assert list(program.computations) == ["on_core", "fused", "main"]
  assert program.root("fused").kind == "negate"
