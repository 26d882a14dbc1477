"""Measures how well one step's gradient points to more right answers.

  python -m experiments.elicitation.gradients --out=FILE.json MODEL...

For each model (a start of the experiment, WORKDIR/prepared/start_20/model) it
samples many batches as a training step does and computes the gradient of every
variant on each. The true gradient is that of the expected number of right
answers: the mean of the unbiased estimate (`rloo`, summed over tokens).

| number | meaning |
| --- | --- |
| alignment | cosine of a variant's expected gradient with the true one |
| signal | norm of the expected gradient over the noise's in one batch |
| progress | expected cosine of one batch's gradient with the true one, nearly
  alignment x signal / sqrt(1 + signal^2) |

Norms and inner products of expected gradients are means over pairs of different
batches, which noise does not bias. Errors are jackknife errors over blocks of
batches. With `--stale_after=T`, the model is first trained for T steps, and
the last rows use batches that earlier policies sampled.
"""

import collections
import dataclasses
import functools
import itertools
import json
import math
import pathlib
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from jax.flatten_util import ravel_pytree

from azr_jax import types
from azr_jax.cli import compilation_cache
from azr_jax.configs import custom as custom_config
from azr_jax.learner import update
from azr_jax.learner.objective import Fixed
from azr_jax.rollout import policy as policy_lib
from azr_jax.systems.custom import controls, examples
from azr_jax.tasks.table.reading import Row
from azr_jax.trainer import build, learner_parts
from azr_jax.trainer import settings as train_settings
from azr_jax.trainer.build import Experiment
from experiments.elicitation import styles

_FOLDER = pathlib.Path(__file__).parent
_BATCHES = flags.DEFINE_integer("batches", 192, "Batches for each model.")
_BLOCKS = flags.DEFINE_integer("blocks", 8, "Blocks of the jackknife.")
_STALE_AFTER = flags.DEFINE_integer(
  "stale_after", 0, "Steps to train first; 0: no stale batches."
)
_OUT = flags.DEFINE_string("out", None, "The file of results.", required=True)

# Names of rewards and the keys of `learner` of each variant.
_TRUE = "true gradient"
_SUM = {"aggregation": "sequence_sum"}
ON_POLICY: Mapping[str, tuple[str, Mapping[str, object]]] = {
  _TRUE: ("right", {"estimator": "rloo", **_SUM}),
  "grpo, as trained": ("right", {}),
  "grpo, sequence_sum": ("right", _SUM),
  "rloo": ("right", {"estimator": "rloo"}),
  "reinforce++": ("right", {"estimator": "reinforce++"}),
  "no baseline": ("right", {"estimator": "reward"}),
  "pass@4": ("right", {"estimator": "pass@k"}),
  "style reward": ("form", {}),
  "majority": ("majority", {}),
  "random": ("coin", {}),
}
STALE: Mapping[str, Mapping[str, object]] = {
  "no correction": {"correction": "none"},
  "truncate": {"correction": "truncate"},
  "mask": {"correction": "mask"},
  "sequence_truncate": {"correction": "sequence_truncate"},
  "clipped ratio to the sampler": {
    "correction": "none",
    "ratio_to": "sampled",
  },
  "cispo": {
    "correction": "none",
    "ratio_to": "sampled",
    "policy_loss": "cispo",
  },
  "gspo": {"correction": "none", "ratio_to": "sampled", "policy_loss": "gspo"},
}
_AGES = (1, 4, 16)

Gradient = Callable[[types.Params, Sequence[types.Trajectory]], jax.Array]


@dataclasses.dataclass
class Moments:
  """Sums over the batches of a block, for one variant.

  Attributes:
    count: number of batches.
    total: sum of the gradients, one value per parameter.
    squares: sum of the squared norms.
    crosses: sum of the inner products with the true estimate of the same batch;
      0 if that is of other batches.
  """

  count: int = 0
  total: jax.Array | float = 0.0
  squares: float = 0.0
  crosses: float = 0.0

  def add(self, gradient: jax.Array, true: jax.Array | None) -> None:
    """Adds the gradient of a batch."""
    self.count += 1
    self.total = self.total + gradient
    self.squares += float(jnp.vdot(gradient, gradient))
    if true is not None:
      self.crosses += float(jnp.vdot(gradient, true))


def numbers(
  own: Sequence[Moments], true: Sequence[Moments], shared: bool
) -> dict[str, float]:
  """Returns alignment, signal and progress from the blocks of a variant.

  Args:
    own: the variant's blocks.
    true: the blocks of the true gradient.
    shared: whether both are of the same batches.
  """
  n, m = (sum(block.count for block in one) for one in (own, true))
  mean = functools.reduce(jnp.add, [block.total for block in own])
  aim = functools.reduce(jnp.add, [block.total for block in true])
  squares = sum(block.squares for block in own)
  norm2 = (float(jnp.vdot(mean, mean)) - squares) / (n * (n - 1))
  noise2 = (squares - float(jnp.vdot(mean, mean)) / n) / (n - 1)
  aim_squares = sum(block.squares for block in true)
  aim2 = (float(jnp.vdot(aim, aim)) - aim_squares) / (m * (m - 1))
  inner = float(jnp.vdot(mean, aim))
  crosses = sum(block.crosses for block in own)
  inner = (inner - crosses) / (n * (n - 1)) if shared else inner / (n * m)
  norm, aim_norm = (math.sqrt(max(x, 1e-30)) for x in (norm2, aim2))
  return {
    "alignment": inner / (norm * aim_norm),
    "signal": norm / math.sqrt(noise2),
    "progress": inner / (aim_norm * math.sqrt(max(norm2, 0.0) + noise2)),
  }


def with_errors(
  own: Sequence[Moments], true: Sequence[Moments], shared: bool
) -> dict[str, float]:
  """Returns `numbers`, each with its jackknife error."""
  found = numbers(own, true, shared)
  parts = [
    numbers(_without(own, i), _without(true, i), shared)
    for i in range(len(own))
  ]
  for name in list(found):
    values = np.array([part[name] for part in parts])
    spread = np.mean((values - values.mean()) ** 2) * (len(values) - 1)
    found[f"{name}_error"] = float(np.sqrt(spread))
  return found


def _without(blocks: Sequence[Moments], index: int) -> list[Moments]:
  return [block for i, block in enumerate(blocks) if i != index]


def _experiment(model: str, changes: Mapping[str, object]) -> Experiment:
  """Returns the parts of a run of the plan, with other keys of `learner`."""
  plan = tomllib.loads((_FOLDER / "experiment.toml").read_text("utf-8"))
  c = custom_config.get_config("tiny")
  with c.ignore_type():
    c.update_from_flattened_dict(plan["set"])
    c.learner.update(changes)
  c.model.source = model
  return build.build(train_settings.read_train(c))


def _gradient(experiment: Experiment) -> Gradient:
  """Returns the gradient of a batch's loss, as one array [parameters]."""
  loss = learner_parts.build_policy_loss(
    experiment.settings.shared, experiment.model, experiment.mesh
  )
  batching = experiment.batching

  @jax.jit
  def compute(params: types.Params, batch: types.Batch) -> jax.Array:
    stop = update.nonempty_micro_batches(batch)
    _, _, grads = update.accumulate(loss, params, batch, Fixed(), 0, stop)
    return -ravel_pytree(grads)[0]

  def gradient(
    params: types.Params, trajectories: Sequence[types.Trajectory]
  ) -> jax.Array:
    values = batching.estimate_advantages(trajectories)
    batch = batching.pack(trajectories, values, 0)
    return compute(params, update.place(batch, experiment.mesh))

  return gradient


class Rewarded:
  """Samples batches of the plan's sums and grades them by every reward."""

  def __init__(self, experiment: Experiment):
    """Reads the sums of the plan."""
    self._experiment = experiment
    self._settings = experiment.settings.system_settings
    lines = (_FOLDER / "sums.jsonl").read_text("utf-8").splitlines()
    self._rows = [json.loads(line) for line in lines]

  def sample(
    self, params: types.Params, seed: int, steps: int
  ) -> Iterator[dict[str, list[types.Trajectory]]]:
    """Yields the trajectories of each step by the name of their reward."""
    rng = np.random.default_rng(seed)
    experiment, size = self._experiment, self._settings.prompts
    key = experiment.interactive_key(seed, is_chosen=True)
    with policy_lib.open_policy(
      experiment.sampler, experiment.source.tokenizer, params, key
    ) as policy:
      for _ in range(steps):
        chosen = rng.choice(len(self._rows), size, replace=False)
        rows = [self._rows[index] for index in chosen]
        yield self._graded(policy, rows)

  def _graded(
    self, policy: policy_lib.Policy, rows: Sequence[Mapping[str, object]]
  ) -> dict[str, list[types.Trajectory]]:
    tokenizer = self._experiment.source.tokenizer
    prompts = []
    for row in rows:
      text = self._settings.writer.text(Row(row["prompt"], {}), tokenizer)
      prompts.append(
        types.Prompt(text, tuple(tokenizer.encode_prompt(text)), row)
      )
    groups = collections.defaultdict(dict)
    for index, number, completion in policy.sample(
      prompts, self._settings.group_size
    ):
      groups[index][number] = completion
    found = collections.defaultdict(list)
    for index, prompt in enumerate(prompts):
      completions = [groups[index][i] for i in sorted(groups[index])]
      for name, rewards in _rewards(rows[index], completions).items():
        found[name] += [
          types.Trajectory(prompt, one, reward, index)
          for one, reward in zip(completions, rewards, strict=True)
        ]
    return found


def _rewards(
  row: Mapping[str, object], completions: Sequence[types.Completion]
) -> dict[str, list[float]]:
  texts = [one.text for one in completions]
  return {
    "right": [
      examples.is_right(text, str(row["answer"]))["reward"] for text in texts
    ],
    "form": [styles.form(text, int(row["terms"])) for text in texts],
    "majority": controls.majority(texts),
    "coin": controls.coin([str(row["prompt"])] * len(texts), texts),
  }


def _measure(
  batches: Iterator[Mapping[str, Sequence[types.Trajectory]]],
  gradients: Mapping[str, tuple[str, Gradient]],
  params: types.Params,
  per_block: int,
) -> dict[str, list[Moments]]:
  """Returns the blocks of each variant over all batches.

  Args:
    batches: the trajectories of each batch by reward.
    gradients: the reward and the gradient of each variant; the first one is the
      true gradient, if it is among them.
    params: the parameters at which gradients are taken.
    per_block: the batches of a block.
  """
  found: dict[str, list[Moments]] = {name: [] for name in gradients}
  for number, batch in enumerate(batches):
    true = None
    for name, (reward, gradient) in gradients.items():
      if number % per_block == 0:
        found[name].append(Moments())
      vector = gradient(params, batch[reward])
      true = vector if name == _TRUE else true
      found[name][-1].add(vector, true)
    if number % per_block == per_block - 1:
      _say(f"{number + 1} batches")
  return found


def _train(
  experiment: Experiment, rewarded: Rewarded, steps: int
) -> Iterator[types.Params]:
  """Yields copies of the parameters before and after each of some steps."""
  state = experiment.learner.init(experiment.load_trained())
  for step in range(1, steps + 1):
    yield jax.tree.map(jnp.copy, state.params)
    [batch] = rewarded.sample(state.params, 10_000 + step, 1)
    trained = batch["right"]
    values = experiment.batching.estimate_advantages(trained)
    packed = experiment.batching.pack(trained, values, step)
    state, _ = experiment.learner.update(
      state, update.place(packed, experiment.mesh), Fixed()
    )
  yield jax.tree.map(jnp.copy, state.params)


def _say(text: str) -> None:
  sys.stderr.write(f"{text}\n")
  sys.stderr.flush()


def _of_model(model: str) -> dict[str, dict[str, float]]:
  """Returns the numbers of every variant for a model."""
  experiment = _experiment(model, {})
  rewarded = Rewarded(experiment)
  gradients = {
    name: (reward, _gradient(_experiment(model, keys)))
    for name, (reward, keys) in ON_POLICY.items()
  }
  steps = _STALE_AFTER.value
  policies = list(
    itertools.islice(
      _train(experiment, rewarded, steps), max(0, steps - max(_AGES)), None
    )
  )
  params = policies[-1]
  per_block = _BATCHES.value // _BLOCKS.value
  batches = rewarded.sample(params, 1, per_block * _BLOCKS.value)
  blocks = _measure(batches, gradients, params, per_block)
  true = blocks[_TRUE]
  found = {
    name: with_errors(one, true, shared=True) for name, one in blocks.items()
  }
  for age in _AGES if steps else ():
    stale = {
      f"{name}, {age} steps old": ("right", _gradient(_experiment(model, keys)))
      for name, keys in STALE.items()
    }
    old = policies[-1 - age]
    batches = rewarded.sample(old, 1 + age, per_block * _BLOCKS.value)
    for name, one in _measure(batches, stale, params, per_block).items():
      found[name] = with_errors(one, true, shared=False)
  return found


def main(argv: Sequence[str]) -> None:
  """Measures each model and writes the results after it."""
  compilation_cache.enable()
  out = pathlib.Path(_OUT.value)
  results = json.loads(out.read_text("utf-8")) if out.exists() else {}
  for model in argv[1:]:
    name = f"{pathlib.Path(model).parent.name}, step {_STALE_AFTER.value}"
    if name in results:
      continue
    results[name] = _of_model(model)
    out.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    for variant, row in results[name].items():
      cells = (
        f"{row[key]:8.3f}" for key in ("alignment", "signal", "progress")
      )
      sys.stdout.write(f"{name}  {variant:40} {' '.join(cells)}\n")


if __name__ == "__main__":
  app.run(main)
