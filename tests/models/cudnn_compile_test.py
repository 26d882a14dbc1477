"""XLA:GPU compiles cuDNN's packed attention without a GPU present."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding

from azr_jax.lab.compile import topology
from azr_jax.models import cudnn
from azr_jax.parallel import mesh as mesh_lib

ROW_LENGTH = 14241


@pytest.mark.slow
@pytest.mark.parametrize(
  ("gpus", "sizes"), [(1, {}), (4, {"fsdp": 2, "tensor": 2})]
)
def test_packed_attention_of_a_long_row_compiles_without_a_bias(gpus, sizes):
  """Compiles a row with 7B's heads; a mask would need 0.95 GiB of scratch."""
  pytest.importorskip("jax_cuda13_plugin", reason="XLA:GPU is not installed")
  name = f"h200:{gpus}"
  mesh = mesh_lib.make_mesh(
    {"data": 1, "fsdp": 1, "tensor": 1} | sizes, topology.devices(name)
  )
  attend = cudnn.make_attention(mesh, 32)
  rows = NamedSharding(mesh, mesh_lib.TOKENS)

  def loss(q, k, v, segments):
    return jnp.sum(attend(q, k, v, segments).astype(jnp.float32) ** 2)

  def array(*shape, dtype=jnp.bfloat16):
    batch = (mesh.shape["fsdp"], ROW_LENGTH, *shape)
    return jax.ShapeDtypeStruct(batch, dtype, sharding=rows)

  compiled = (
    jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    .lower(array(28, 128), array(4, 128), array(4, 128), array(dtype=jnp.int32))
    .compile(compiler_options={**topology.compiler_options(name)})
  )
  text, memory = compiled.as_text(), compiled.memory_analysis()
  assert text is not None and memory is not None
  assert set(re.findall(r"__cudnn\$(\w+)", text)) == {
    "fmhaSoftmax",
    "fmhaSoftmaxBackward",
  }
  assert memory.temp_size_in_bytes < 0.6 * 2**30
  # Heads are gathered over `tensor`, but no row leaves its device.
  assert not re.search(r"all-to-all|collective-permute", text)
