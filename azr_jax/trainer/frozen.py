"""The frozen base of a run that trains adapters.

Learner, reference policy, critic and sampler read one copy of the base where
they can: if learner and sampler use the same devices in the same way, and no
kernel is split over `fsdp`. The base then has the sampler's layout from its
loading on. Elsewhere the learner's copy is stacked, and the sampler converts
it in every step.
"""

import dataclasses
import functools
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import DTypeLike

from azr_jax import types
from azr_jax.config import user_files
from azr_jax.config.settings import Invalid
from azr_jax.models import load, sampling_params, transformer
from azr_jax.models.adapters import Lora
from azr_jax.models.settings import LoraSettings
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.randomness import keys
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout import build as rollout_build
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.run import storage
from azr_jax.run.session import Run
from azr_jax.trainer.settings import TrainSettings

# A run's files that identify its base, and a teacher that is another model.
IDENTITY = "base.json"
TEACHER = "teacher.json"
# The unsigned type of a dtype's size in bytes.
_UNSIGNED = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}
_ZERO = np.uint32(0)


def is_shared(
  lora: LoraSettings,
  rollout: SamplerSettings,
  dtype: str,
  mesh: Mesh,
  sampling_mesh: Mesh,
) -> bool:
  """Returns whether the sampler reads the learner's copy of the base.

  Args:
    lora: section `lora` of the configuration.
    rollout: section `rollout` of the configuration.
    dtype: name of the compute dtype.
    mesh: the learner's mesh.
    sampling_mesh: the sampler's mesh.
  """
  return (
    lora.rank > 0
    and is_placed(mesh, sampling_mesh)
    and rollout.kernel_dtype in (None, lora.kernel_dtype)
    and lora.matrix_dtype(dtype) == dtype
  )


def is_placed(mesh: Mesh, sampling_mesh: Mesh) -> bool:
  """Returns whether loaded parameters are where sampling reads them.

  Args:
    mesh: the mesh that they were loaded for.
    sampling_mesh: the sampler's mesh.
  """
  return mesh == sampling_mesh and mesh.shape["fsdp"] == 1


def arranged(
  c: TrainSettings, model: transformer.Transformer, mesh: Mesh
) -> transformer.Transformer:
  """Returns the learner's decoder in the layout of the sampler's.

  Args:
    c: the run's settings, for which `is_shared` is true.
    model: the learner's decoder.
    mesh: the mesh of both.
  """
  sampled = rollout_build.sampling_model(
    model, mesh, c.sharding.rules(), c.rollout
  )
  return model.clone(
    fused=sampled.fused,
    unrolled=sampled.unrolled,
    inlined=model.inlined and not sampled.unrolled,
  )


def load_base(
  source: load.ModelSource,
  model: transformer.Transformer,
  dtype: DTypeLike,
  mesh: Mesh,
  rules: types.Rules,
) -> types.Params:
  """Returns the frozen parameters of a model; {} without adapters.

  Args:
    source: the model.
    model: the learner's decoder, whose layout the parameters get.
    dtype: the dtype of matrices that do not have 8 bits.
    mesh: the mesh of the parameters.
    rules: logical axis to mesh axis.
  """
  if model.lora is None:
    return {}
  params = source.load_params(
    mesh,
    rules,
    dtype=dtype,
    kernel_dtype=model.kernel_dtype,
  )
  return sampling_params.arrange(model, params)


def freeze(
  params: types.Params, model: transformer.Transformer, dtype: DTypeLike
) -> types.Params:
  """Returns the frozen parameters that a run makes of trained ones.

  Args:
    params: all parameters of a decoder, float32, stacked. They must not be used
      afterwards.
    model: the learner's decoder, whose layout the parameters get.
    dtype: the dtype of matrices that do not have 8 bits.
  """
  stored = model.clone(fused=False, unrolled=False, dtype=jnp.dtype(dtype))
  convert = functools.partial(sampling_params.convert, stored)
  params = jax.jit(convert, donate_argnums=0)(params)
  return sampling_params.arrange(model, params)


def load_trained(
  source: load.ModelSource,
  model: transformer.Transformer,
  mesh: Mesh,
  rules: types.Rules,
  seed: int,
) -> types.Params:
  """Returns the initial trained parameters of a model in the learner's dtypes.

  Args:
    source: the model.
    model: the learner's decoder.
    mesh: the mesh of the parameters.
    rules: logical axis to mesh axis.
    seed: the seed of new adapters.
  """
  if model.lora is None:
    return source.load_params(mesh, rules, dtype=model.param_dtype)
  if source.load_adapters is not None:
    return source.load_adapters(mesh, rules)
  return init_adapters(model, mesh, rules, seed)


def init_adapters(
  model: transformer.Transformer, mesh: Mesh, rules: types.Rules, seed: int
) -> types.Params:
  """Returns new adapters, float32, which change nothing yet.

  Args:
    model: the learner's decoder.
    mesh: the mesh of the parameters.
    rules: logical axis to mesh axis.
    seed: the seed of the run.
  """
  boxed = transformer.abstract_trained(model)
  draw = jax.jit(
    lambda key: transformer.init_adapters(model, key),
    out_shardings=mesh_lib.param_shardings(boxed, mesh, rules),
  )
  return draw(keys.of(seed, Purpose.ADAPTERS))


def check_adapters(lora: LoraSettings, other: Lora | None, where: str) -> None:
  """Raises Invalid unless the settings describe the adapters to start from.

  Args:
    lora: section `lora` of the configuration.
    other: the adapters of the start; None if it has none.
    where: the key that names the start, such as `config.model.source`.
  """
  if other is not None and other != lora.adapters:
    raise Invalid(
      "config.lora",
      f"={lora.adapters}: expected the adapters of {where}, "
      f"rank={other.rank}, alpha={other.alpha:g}, "
      f"rank_stabilized={other.rank_stabilized}, targets={other.targets}, "
      f"expert_rank={other.expert_rank}",
    )


@dataclasses.dataclass(frozen=True)
class Origin:
  """Where the frozen parameters of a run come from.

  Attributes:
    source: the model spec of the run.
    run: the run whose parameters they are; "" if they are the source's.
    step: the step of that run.
  """

  source: str
  run: str = ""
  step: int = 0


def read_origin(folder: pathlib.Path) -> Origin | None:
  """Returns the origin that `pin` wrote; None if the run has no frozen base.

  Raises:
    ValueError: the file is damaged.
  """
  fields = _read(folder / IDENTITY)
  if fields is None:
    return None
  return Origin(*(fields[f.name] for f in dataclasses.fields(Origin)))


def _read(path: pathlib.Path) -> dict[str, Any] | None:
  """Returns the fields of an identity file; None if there is none."""
  if not path.exists():
    return None
  with user_files.reading(path, "origin and digest of a model, as JSON"):
    fields = user_files.read_object(path)
    kinds = {"source": str, "run": str, "step": int, "digest": str}
    return {name: kind(fields[name]) for name, kind in kinds.items()}


def pin(base: types.Params, origin: Origin, run: Run) -> None:
  """Writes the identity of a new run's base, or checks a resumed run's.

  Args:
    base: the frozen parameters; {} without adapters.
    origin: where they come from.
    run: its folder keeps the identity.

  Raises:
    ValueError: the run was started with another base.
  """
  if base:
    own, path = identity(base), run.folder / IDENTITY
    _pin(
      "the base model",
      *(own, origin, path, run),
      f"config.model.source={origin.source!r}",
      f"whose adapters {run.folder} trains",
    )


def pin_teacher(teacher: types.Params | None, source: str, run: Run) -> None:
  """Writes the identity of a new run's teacher, or checks a resumed run's.

  Args:
    teacher: the parameters of another model; None without one.
    source: the model's spec.
    run: its folder keeps the identity.

  Raises:
    ValueError: the run was started with another teacher.
  """
  if teacher is not None:
    own, path = identity(teacher), run.folder / TEACHER
    _pin(
      "the teacher",
      *(own, Origin(source), path, run),
      f"config.distill.teacher={source!r}",
      f"which taught {run.folder} before",
    )


def _pin(
  what: str,
  own: str,
  origin: Origin,
  path: pathlib.Path,
  run: Run,
  named: str,
  why: str,
) -> None:
  """Writes origin and digest, or compares the digest with the one written."""

  def write_or_compare() -> None:
    begun = _read(path)
    if begun is None:
      _write(own, origin, path)
    elif begun["digest"] != own:
      raise ValueError(
        f"{named} has weights with digest {own}: expected {begun['digest']}, "
        f"{why}"
      )

  run.build(what, write_or_compare)


def write_identity(own: str, origin: Origin, folder: pathlib.Path) -> None:
  """Writes the digest and the origin of a base to a run's folder."""
  _write(own, origin, folder / IDENTITY)


def _write(own: str, origin: Origin, path: pathlib.Path) -> None:
  fields = dataclasses.asdict(origin) | {"digest": own}
  storage.write_atomically(path, json.dumps(fields) + "\n")


def identity(base: types.Params) -> str:
  """Returns a digest of parameters that layout and sharding do not change."""

  @jax.jit
  def sums(leaves: list[jax.Array]) -> jax.Array:
    words = [
      jax.lax.bitcast_convert_type(leaf, _UNSIGNED[leaf.dtype.itemsize]).astype(
        jnp.uint32
      )
      for leaf in leaves
    ]
    return jnp.stack(
      [
        sum((jnp.sum(word, dtype=jnp.uint32) for word in words), start=_ZERO),
        sum(
          (jnp.sum(word * (word | 1), dtype=jnp.uint32) for word in words),
          start=_ZERO,
        ),
      ]
    )

  first, second = jax.device_get(sums(jax.tree.leaves(base))).tolist()
  return f"{first:08x}{second:08x}"
