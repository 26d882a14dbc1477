"""Peak device memory of starting, resuming and loading.

Counts the bytes of arrays on the fullest device. `azr_jax.compile_check` counts
what a program needs in addition to its arguments and results.
"""

import collections
import gc
import math
import threading

import jax
import pytest
from typed import instance_of

from azr_jax import export
from azr_jax.configs import evaluate, orz
from azr_jax.learner.actor_critic import ActorCritic
from azr_jax.models import presets, safetensors_io
from azr_jax.run import session
from azr_jax.run.checkpoint import Checkpointer
from azr_jax.trainer import build, loading, restore, settings

MESH = {"data": 1, "fsdp": 8, "tensor": 1}


def by_device(arrays):
  """Bytes of arrays on each device."""
  counts = collections.Counter()
  for array in arrays:
    shard = math.prod(array.sharding.shard_shape(array.shape))
    for device in array.sharding.device_set:
      counts[device] += shard * array.dtype.itemsize
  return counts


def fullest(arrays, before=None):
  """Bytes of arrays on the fullest device, except for arrays from before."""
  counts = by_device(arrays)
  counts.subtract(before or {})
  return max(counts.values(), default=0)


class PeakBytes(threading.Thread):
  """Polls the arrays on devices until `stop`, and records the peak."""

  def __init__(self):
    super().__init__(daemon=True)
    gc.collect()
    self._before = by_device(jax.live_arrays())
    self.peak = 0
    self._done = threading.Event()
    self.start()

  def now(self):
    """Bytes that were added to the fullest device."""
    return fullest(jax.live_arrays(), self._before)

  def run(self):
    while not self._done.wait(0.002):
      self.peak = max(self.peak, self.now())

  def stop(self):
    self._done.set()
    self.join()
    return max(self.peak, self.now())


def experiment_of(**changes):
  """A policy and a critic of 1.7M parameters, in bfloat16."""
  config = orz.get_config("tiny")
  config.mesh.update(MESH)
  config.model.dtype = "bfloat16"
  config.update_from_flattened_dict(changes)
  return build.build(settings.read_train(config))


def save(experiment, *folders):
  """Saves a fresh state as step 4 of several runs."""
  state = experiment.learner.init(experiment.load_trained())
  for folder in folders:
    with Checkpointer(folder, keep=None) as checkpoints:
      checkpoints.save(4, state, {})


KL = {"learner.kl_coef": 0.1}


@pytest.mark.parametrize(
  "start, changes",
  [
    ("model", KL),
    ("resumed", {}),
    ("stage resumed", {}),
    *(
      pytest.param(start, changes, marks=pytest.mark.slow)
      for start, changes in (
        ("model", {}),
        ("folder", {}),
        ("resumed", KL),
        ("run", KL),
        ("stage", {}),
        ("stage", KL),
      )
    ),
  ],
  ids=lambda value: value if isinstance(value, str) else "".join(value),
)
def test_a_run_begins_and_resumes_with_one_state_in_memory(
  tmp_path, start, changes
):
  """Includes a critic's state and, with a KL term, the reference parameters.

  Resuming `orz:tiny` once took the memory of two states.
  """
  changes = dict(changes)
  if start == "folder":
    source = build.build(settings.read_train(orz.get_config("tiny"))).source
    changes["model.source"] = str(tmp_path / "model")
    safetensors_io.save(
      experiment_of().load_trained(),
      source.config,
      tmp_path / "model",
      dtype="float32",
      eos_ids=source.tokenizer.eos_ids,
    )
    source.tokenizer.save(tmp_path / "model")
  if start in ("run", "stage", "stage resumed"):
    changes["train.init_from_run"] = str(tmp_path / "source")
    changes["train.keep_moments"] = start != "run"
  experiment = experiment_of(**changes)
  if start == "resumed":
    save(experiment, tmp_path / "run")
  elif "train.init_from_run" in changes:
    also = [tmp_path / "run"] if start == "stage resumed" else []
    save(experiment, tmp_path / "source", *also)
  peak = PeakBytes()
  with session.open_run(str(tmp_path / "run"), {}, 1.0) as run:
    with run.open_checkpoints(1) as checkpoints:
      done = 4 if start.endswith("resumed") else 0
      state, fixed, _ = restore.training_state(
        experiment, run, checkpoints, done
      )
      jax.block_until_ready((state, fixed))
  one = fullest(jax.tree.leaves((state, fixed)))
  # An eighth of policy and critic, each with two moments, in float32.
  assert one > 30e6 / 8
  assert (fixed.reference is not None) == ("learner.kl_coef" in changes)
  ratio = peak.stop() / one
  assert 0.99 < ratio < 1.05, ratio


@pytest.fixture
def trained(tmp_path):
  """A run folder, and the bytes of its float32 parameters."""
  experiment = experiment_of()
  config = orz.get_config("tiny").to_dict()
  folder = tmp_path / "trained"
  save(experiment, folder)
  with session.open_run(str(folder), config, 1.0):
    pass
  state = instance_of(ActorCritic, experiment.learner.abstract)
  params = state.policy.params
  return folder, fullest(jax.tree.leaves(params))


def sampling_config():
  config = evaluate.get_config()
  config.mesh.update(MESH)
  config.model.dtype = "bfloat16"
  return config


def test_an_export_loads_the_parameters_once(trained, tmp_path):
  """Also holds one tensor at a time, cast and gathered, for writing."""
  folder, one = trained
  peak = PeakBytes()
  export.export(
    sampling_config(), str(folder), str(tmp_path / "out"), "bfloat16"
  )
  shape = presets.PRESETS["azr-tiny"]
  largest = 2 * shape.vocab_size * shape.hidden_size
  assert 0.99 * one < peak.stop() < 1.05 * one + largest


def test_commands_that_sample_keep_the_weights_of_sampling_alone(trained):
  """Half of the parameters' bytes, except for scales, which stay float32."""
  folder, one = trained
  c = settings.read(settings.EvaluateSettings, sampling_config())
  peak = PeakBytes()
  policy = loading.load_policy(c, str(folder))
  jax.block_until_ready(policy.params)
  ratio = peak.stop() / one
  # For a moment, memory holds the parameters, their cast copies, and the cast
  # copies in the sampler's layout.
  assert ratio < 2.05, ratio
  assert peak.now() < 0.55 * one
