"""Sections `mesh`, `sharding` and `hosts` of a configuration."""

import dataclasses

from azr_jax.config.settings import Settings, setting

_SIZE = (lambda v: v == -1 or v >= 1, "-1 or at least 1")
_MESH_AXES = ("data", "fsdp", "expert", "tensor", "")


@dataclasses.dataclass(frozen=True)
class MeshSettings(Settings):
  """The number of devices on each axis of the mesh."""

  data: int = setting(1, "replicas; -1 uses all other devices", accepts=_SIZE)
  fsdp: int = setting(-1, "shards of the training state", accepts=_SIZE)
  expert: int = setting(
    1, "shards of the experts, and of a batch's rows", accepts=_SIZE
  )
  tensor: int = setting(1, "shards of heads and widths", accepts=_SIZE)
  context: int = setting(
    1,
    "shards of a row's tokens, in updates and scoring",
    accepts=_SIZE,
    expert=True,
  )

  def sizes(self) -> dict[str, int]:
    """Returns {axis: size}, the `shape` argument of `mesh.make_mesh`."""
    return {
      "data": self.data,
      "fsdp": self.fsdp,
      "expert": self.expert,
      "tensor": self.tensor,
      "context": self.context,
    }


def _axis(default: str, doc: str) -> str:
  return setting(default, doc, choices=_MESH_AXES, expert=True)


@dataclasses.dataclass(frozen=True)
class ShardingSettings(Settings):
  """The mesh axis of each logical parameter axis; "" to replicate it."""

  vocab: str = _axis("tensor", "mesh axis of the vocabulary")
  embed: str = _axis("fsdp", "mesh axis of the model width")
  heads: str = _axis("tensor", "mesh axis of the query heads")
  kv_heads: str = _axis("tensor", "mesh axis of the key and value heads")
  head_size: str = _axis("", "mesh axis within a head")
  mlp: str = _axis("tensor", "mesh axis of the MLP width")
  experts: str = _axis("expert", "mesh axis of the experts")
  layers: str = _axis("", "mesh axis of the stacked layers")

  def rules(self) -> dict[str, str | None]:
    """Returns {logical axis: mesh axis, or None to replicate}."""
    names = [field.name for field in dataclasses.fields(self)]
    return {name: getattr(self, name) or None for name in names}


@dataclasses.dataclass(frozen=True)
class HostsSettings(Settings):
  """How the processes of a run wait for each other."""

  timeout_s: float = setting(
    600.0, "seconds that hosts wait for each other", above=0, expert=True
  )
