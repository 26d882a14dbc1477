"""The parameters that sampling reads, held in one place."""

import dataclasses

from azr_jax.types import Params


@dataclasses.dataclass(eq=False)
class Weights:
  """The parameters that sampling reads, laid out by `Sampler.compute_params`.

  The policies of a step, their stream and its scheduler share one instance and
  hold no other reference to the parameters. `release` therefore frees them even
  while policies or streams are still referenced.

  Attributes:
    params: the parameters; None while released. Streams then hold their
      sequences until `restore`.
    version: number of updates that produced the parameters. Each sampled token
      records it.
  """

  params: Params | None = None
  version: int = 0

  def release(self) -> None:
    """Drops the parameters; streams must be suspended first."""
    self.params = None

  def restore(self, params: Params, version: int) -> None:
    """Sets new parameters after a release."""
    self.params, self.version = params, version
