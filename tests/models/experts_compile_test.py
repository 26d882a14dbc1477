"""The compilers of TPUs and GPUs compute no more than the chosen experts."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from azr_jax.lab.compile import topology
from azr_jax.models import expert_mlps, expert_sharding
from azr_jax.models.presets import PRESETS
from azr_jax.parallel import mesh as mesh_lib
from tests.typed import present

TOKENS = 14336


@pytest.mark.slow
@pytest.mark.parametrize(
  ("preset", "name", "package", "scratch_mib"),
  [
    ("qwen3-30b-a3b", "v5p:2x2x1", "libtpu", 1900),
    ("qwen3-30b-a3b", "h100:1", "jax_cuda13_plugin", 1700),
    ("gpt-oss-20b", "v5p:2x2x1", "libtpu", 2000),
    ("gpt-oss-20b", "h100:1", "jax_cuda13_plugin", 2100),
  ],
)
def test_a_layer_compiles(preset, name, package, scratch_mib):
  """Forward and backward, all gradients; scratch holds the rows of tokens."""
  pytest.importorskip(package, reason="the compiler is not installed")
  config = PRESETS[preset]
  shape = present(config.experts)
  X, D, F = shape.count, config.hidden_size, shape.size
  mesh = mesh_lib.make_mesh({"data": 1}, topology.devices(name)[:1])
  whole = NamedSharding(mesh, PartitionSpec())
  compute = expert_sharding.make(mesh, {})

  def array(*size, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(size, dtype, sharding=whole)

  def loss(x, weights, kernels, biases, chosen):
    each = expert_mlps.Projections(
      *(
        expert_mlps.ExpertParams(kernel, bias=bias)
        for kernel, bias in zip(kernels, biases, strict=True)
      )
    )
    y = compute(x, weights, chosen, each, 1.0, shape.clamp)
    return jnp.sum(y.astype(jnp.float32))

  compiled = (
    jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))
    .lower(
      array(1, TOKENS, D),
      array(1, TOKENS, shape.per_token, dtype=jnp.float32),
      [array(X, D, F), array(X, D, F), array(X, F, D)],
      [array(X, n) if shape.biases else None for n in (F, F, D)],
      array(1, TOKENS, shape.per_token, dtype=jnp.int32),
    )
    .compile(compiler_options={**topology.compiler_options(name)})
  )
  memory = present(compiled.memory_analysis())
  assert memory.temp_size_in_bytes < scratch_mib * 2**20
  if package == "libtpu":  # XLA:GPU counts no operations of its kernels.
    active = 3 * 2 * TOKENS * shape.per_token * 3 * D * F
    costs = present(compiled.cost_analysis())
    assert active < costs["flops"] < 1.2 * active
