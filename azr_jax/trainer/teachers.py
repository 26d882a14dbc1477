"""A teacher of distillation that is another model: found, checked and loaded.

Its decoder may have another shape and family than the policy's. It reads the
policy's token ids, so both tokenizers must give an id the same meaning.
"""

import contextlib
import dataclasses
from collections.abc import Iterator

from jax.sharding import Mesh

from azr_jax import types
from azr_jax.config.settings import Invalid
from azr_jax.learner.distillation import TEACHERS, DistillSettings
from azr_jax.learner.learner import abstract_frozen
from azr_jax.models import expert_sharding, load, rope, transformer
from azr_jax.models.config import ModelConfig
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.trainer import messages
from azr_jax.trainer.settings import TrainSettings

_KEY = "config.distill.teacher"


def find(c: TrainSettings, tokenizer: Tokenizer) -> load.ModelSource | None:
  """Returns the teacher; None if it is the policy, or there is none.

  Downloads it if needed, and warns if sequences may be too long for it.

  Args:
    c: the run's settings.
    tokenizer: the policy's tokenizer.

  Raises:
    Invalid: the teacher cannot be loaded or has another vocabulary.
  """
  spec = c.distill.other_model
  if not spec:
    return None
  with _named(spec):
    source = load.resolve(spec, c.model.cache_dir)
  if source.lora is not None:
    raise Invalid(
      _KEY,
      f"={spec!r}: expected a whole model, but these are adapters; merge them "
      "with azr_jax.export",
    )
  _check_vocabulary(spec, source.tokenizer, tokenizer)
  # Its notes say how its own responses end, but it writes none.
  silent = dataclasses.replace(source, notes=())
  messages.announce_model(silent, _longest(c), name=f"the teacher {spec}")
  return source


@contextlib.contextmanager
def _named(spec: str) -> Iterator[None]:
  """Adds the key to the error about a model that does not exist."""
  try:
    yield
  except ValueError as error:
    raise Invalid(
      _KEY, f"={spec!r}: expected one of {TEACHERS}, or a model ({error})"
    ) from error


def _check_vocabulary(spec: str, theirs: Tokenizer, ours: Tokenizer) -> None:
  """Raises Invalid if an id of the policy's means something else elsewhere.

  The other tokenizer may have more ids.
  """
  pieces = theirs.vocabulary()
  for index, piece in sorted(ours.vocabulary().items()):
    if pieces.get(index) != piece:
      raise Invalid(
        _KEY,
        f"={spec!r}: expected a model with the policy's vocabulary, but id "
        f"{index} is {pieces.get(index)!r} there and {piece!r} here",
      )


def _longest(c: TrainSettings) -> int:
  """Returns the tokens of the longest sequence that a teacher reads."""
  return c.rollout.longest + 1 + c.distill.added_tokens


def config_of(distill: DistillSettings, cache_dir: str) -> ModelConfig | None:
  """Returns the teacher's config as `load.config_of` does; None without one.

  Raises:
    Invalid: the teacher names no model.
  """
  spec = distill.other_model
  if not spec:
    return None
  with _named(spec):
    return load.config_of(spec, cache_dir)


def build(
  c: TrainSettings, config: ModelConfig | None, mesh: Mesh
) -> tuple[transformer.Transformer | None, types.Params | None]:
  """Builds the decoder of a teacher. Loads nothing.

  Args:
    c: the run's settings.
    config: the teacher's config; None without one.
    mesh: the learner's mesh, which the teacher's parameters are sharded on.

  Returns:
    The decoder, and shapes, dtypes and shardings of its parameters; (None,
    None) without a teacher.

  Raises:
    ValueError: the mesh cannot split the teacher's experts.
  """
  if config is None:
    return None, None
  rules = c.sharding.rules()
  if config.experts is not None:
    expert_sharding.check(config, mesh, rules, "config.mesh.expert")
  model = transformer.training(
    rope.for_length(config, _longest(c)),
    c.model.dtype,
    mesh,
    rules,
    attention_name=c.model.attention,
    max_sequences_per_row=c.learner.max_sequences_per_row,
    remat="none",  # It has no backward pass.
    layers=c.model.layers,
  )
  boxed = transformer.abstract_params(model)
  return model, abstract_frozen(boxed, None, mesh, rules, model.dtype)
