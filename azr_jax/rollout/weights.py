"""The parameters that sampling reads: one place holds them."""

import dataclasses

from azr_jax.types import Params


@dataclasses.dataclass(eq=False)
class Weights:
  """The parameters that sampling reads, laid out by `Sampler.compute_params`.

  The policies of a step, their stream and its scheduler share one instance and
  keep no reference to the parameters themselves. So `release` frees them,
  whatever still refers to a policy or a stream.

  Attributes:
    params: the parameters; None while there are none. Streams then keep their
      sequences until `restore`.
    version: number of updates that produced the parameters, which each sampled
      token records.
  """

  params: Params | None = None
  version: int = 0

  def release(self) -> None:
    """Drops the parameters; streams that read them are suspended before."""
    self.params = None

  def restore(self, params: Params, version: int) -> None:
    """Puts parameters in place of those that were released."""
    self.params, self.version = params, version
