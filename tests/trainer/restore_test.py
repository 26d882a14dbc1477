"""The start of a run, and the checkpoint it resumes from."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from restored_state import same
from typed import instance_of

from azr_jax.configs import azr
from azr_jax.learner.actor_critic import ActorCritic
from azr_jax.models import load
from azr_jax.run import session
from azr_jax.run.checkpoint import Checkpointer
from azr_jax.trainer import build, restore, settings
from azr_jax.trainer.build import Experiment

pytestmark = pytest.mark.usefixtures("two_devices")


def experiment_of(**changes):
  config = azr.get_config("tiny")
  config.mesh.update({"data": 2, "fsdp": 1, "tensor": 1})
  config.update_from_flattened_dict(changes)
  return build.build(settings.read_train(config))


@contextlib.contextmanager
def opened(folder):
  """A run in a folder, and its checkpoints."""
  with session.open_run(str(folder), {}, 1.0) as run:
    with run.open_checkpoints(1) as checkpoints:
      yield run, checkpoints


@pytest.mark.parametrize(
  "kl_coef, loads, teacher",
  [(0.0, 0, "policy"), (0.1, 1, "policy"), (0.0, 0, "random:moe-tiny")],
)
def test_a_resumed_run_loads_its_start_for_a_reference_only(
  tmp_path, monkeypatch, kl_coef, loads, teacher
):
  experiment = experiment_of(
    **{
      "learner.kl_coef": kl_coef,
      "distill.weight": 1.0,
      "distill.teacher": teacher,
      "model.dtype": "float32" if kl_coef else "bfloat16",
    }
  )
  loaded = []
  load_trained = Experiment.load_trained

  def counted(self):
    loaded.append(self)
    return load_trained(self)

  monkeypatch.setattr(Experiment, "load_trained", counted)
  with opened(tmp_path) as (run, checkpoints):
    state, fixed, system = restore.training_state(
      experiment, run, checkpoints, 0
    )
    assert len(loaded) == 1 and system == {}
    assert (fixed.reference is not None) == (kl_coef > 0)
    checkpoints.save(5, state, {"tasks": [1]})
  loaded.clear()
  with opened(tmp_path) as (run, checkpoints):
    resumed, fixed_again, system = restore.training_state(
      experiment, run, checkpoints, 5
    )
  assert len(loaded) == loads
  assert system == {"tasks": [1]}
  assert same(resumed, state)
  if kl_coef:
    reference = fixed.reference
    assert same(reference, state.params)
    assert same(fixed_again.reference, reference)
  assert (fixed.teacher is None) == (teacher == "policy")
  if fixed.teacher is not None:
    assert same(fixed_again.teacher, fixed.teacher)
    assert fixed.teacher["embedding"].dtype == jnp.bfloat16


def test_a_run_to_start_from_is_named_and_not_made(tmp_path):
  folder = tmp_path / "nowhere"
  experiment = experiment_of(**{"train.init_from_run": str(folder)})
  with pytest.raises(ValueError, match="config.train.init_from_run='.*nowhere"):
    restore.pin_start(experiment, tmp_path)
  assert not folder.exists()


GAE = {"learner.estimator": "gae"}
NO_CLIP = {"optimizer.grad_clip": 0.0}  # Changes the optimizer state's names.


def state_of(seed, changes):
  """A fresh state with random weights."""
  experiment = experiment_of(**changes)
  rules = experiment.settings.shared.sharding.rules()
  params = load.random_params(experiment.source.config, seed)
  return experiment.learner.init(params(experiment.mesh, rules))


@pytest.mark.parametrize(
  "source, own",
  [
    (GAE, GAE),
    pytest.param(GAE, {}, marks=pytest.mark.slow),
    pytest.param(NO_CLIP, GAE, marks=pytest.mark.slow),
  ],
)
@pytest.mark.slow
def test_a_run_starts_from_another_run_s_parameters_alone(
  tmp_path, source, own
):
  states = {step: state_of(step, source) for step in (3, 4)}
  with Checkpointer(tmp_path / "source", keep=None) as checkpoints:
    checkpoints.save(3, states[3], {})
  spec = {"train.init_from_run": str(tmp_path / "source")}
  experiment = experiment_of(**spec, **own, **{"learner.kl_coef": 0.1})
  with opened(tmp_path / "run") as (run, checkpoints):
    state, fixed, _ = restore.training_state(experiment, run, checkpoints, 0)
    checkpoints.save(1, state, {})
  assert same(state.params, states[3].params)
  assert same(fixed.reference, states[3].params)
  if own == source:
    ours = instance_of(ActorCritic, state).critic
    theirs = instance_of(ActorCritic, states[3]).critic
    assert same(ours.params, theirs.params)
  # The source trains on, but the penalty keeps the same reference.
  with Checkpointer(tmp_path / "source", keep=None) as checkpoints:
    checkpoints.save(4, states[4], {})
  with opened(tmp_path / "run") as (run, checkpoints):
    _, fixed, _ = restore.training_state(experiment, run, checkpoints, 1)
  assert same(fixed.reference, states[3].params)


def stage_of(folder, **changes):
  """An experiment that continues with the moments of a run."""
  keep = {"train.init_from_run": str(folder), "train.keep_moments": True}
  return experiment_of(**GAE, **keep, **changes)


def learned_state(seed):
  """A state whose counters look as if it had been updated."""
  state = state_of(seed, GAE)
  return jax.tree.map(lambda x: x + x.dtype.type(seed), state)


def test_annealing_keeps_the_moments_and_its_schedule_starts_over(tmp_path):
  trained = learned_state(3)
  with Checkpointer(tmp_path / "source", keep=None) as checkpoints:
    checkpoints.save(4, trained, {})
  experiment = stage_of(
    tmp_path / "source",
    **{
      "optimizer.warmup_steps": 5,
      "optimizer.decay": "linear",
      "optimizer.decay_steps": 100,
      "optimizer.final_learning_rate": 3e-7,
    },
  )
  with opened(tmp_path / "run") as (run, checkpoints):
    state, _, _ = restore.training_state(experiment, run, checkpoints, 0)
    checkpoints.save(1, state, {})
  with opened(tmp_path / "run") as (run, checkpoints):
    resumed, _, _ = restore.training_state(experiment, run, checkpoints, 1)
  assert same(resumed, state)
  for part, source in (
    (state.policy, trained.policy),
    (state.critic, trained.critic),
  ):
    assert same(part.params, source.params)
    assert part.step == 0
    adam, schedule = part.opt_state[1][0], part.opt_state[1][2]
    assert same(adam, source.opt_state[1][0]) and adam.count == 3
    assert schedule.count == 0 and source.opt_state[1][2].count == 3


def test_a_stage_continues_the_average_of_a_teacher(tmp_path):
  taught = {"distill.weight": 1.0, "distill.teacher": "average"}
  trained: Any = state_of(3, taught)
  other = jax.tree.map(lambda x: x + 1, trained.opt_state.average)
  trained = trained.replace(opt_state=trained.opt_state._replace(average=other))
  for name, state in (("source", trained), ("plain", state_of(3, {}))):
    with Checkpointer(tmp_path / name, keep=None) as checkpoints:
      checkpoints.save(4, state, {})

  def started(source, **changes) -> Any:
    changes = taught | {"train.init_from_run": str(tmp_path / source)} | changes
    experiment = experiment_of(**changes)
    folder = tmp_path / f"from_{source}_{len(changes)}"
    with opened(folder) as (run, checkpoints):
      return restore.training_state(experiment, run, checkpoints, 0)[0]

  keep = {"train.keep_moments": True}
  assert same(started("source", **keep).opt_state.average, other)
  assert same(started("source").opt_state.average, trained.params)
  with pytest.raises(ValueError, match="use of distill.teacher='average'"):
    started("plain", **keep)
  with pytest.raises(ValueError, match="use of distill.teacher='average'"):
    started("source", **keep, **{"distill.teacher": "policy"})


def test_a_stage_without_its_run_or_with_another_optimizer_is_named(tmp_path):
  with pytest.raises(ValueError, match="config.train.init_from_run=''"):
    restore.pin_start(stage_of(""), tmp_path)
  with Checkpointer(tmp_path / "source", keep=None) as checkpoints:
    checkpoints.save(4, state_of(3, NO_CLIP), {})
  with opened(tmp_path / "run") as (run, checkpoints):
    with pytest.raises(ValueError, match="same model, estimator and optimizer"):
      restore.training_state(stage_of(tmp_path / "source"), run, checkpoints, 0)


def test_a_reference_that_is_gone_is_named(tmp_path):
  experiment = experiment_of(
    **{"train.init_from_run": str(tmp_path / "source")}
  )
  for step in (3, 4):
    with Checkpointer(tmp_path / "source", keep=1) as checkpoints:
      checkpoints.save(step, state_of(step, {}), {})
    assert restore.pin_start(experiment, tmp_path) == 3
  with pytest.raises(ValueError, match="no longer holds the checkpoint of st"):
    restore.initial_params(experiment, 3, with_critic=False)
