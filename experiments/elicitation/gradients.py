"""Measures how well the gradient of one step points to more right answers.

  python -m experiments.elicitation.gradients --out=FILE.json MODEL...

For each model (WORKDIR/prepared/start_20/model) it samples batches as a step of
the plan does and computes the gradient of every variant on each. The true
gradient is the gradient of the expected number of right answers. RLOO with
losses summed over tokens estimates it without bias. `within` is its term that
raises accuracy within styles: answers are compared within their style only.
`gradient_moments.py` defines the numbers.

With `--train_steps=T`, the model is first trained for T steps as the arm
`right_20` is. Then further rows use batches that earlier policies sampled.

Raw gradients are compared. A run also clips norms above 1, and Adam divides by
the root of the second moments.
"""

import collections
import dataclasses
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
from azr_jax.learner import gap, update
from azr_jax.learner.objective import Fixed
from azr_jax.rollout import policy as policy_lib
from azr_jax.systems.custom import controls, examples
from azr_jax.tasks.table.reading import Row
from azr_jax.trainer import build, learner_parts
from azr_jax.trainer import settings as train_settings
from azr_jax.trainer.build import Experiment
from experiments.elicitation import gradient_moments, styles
from experiments.elicitation.gradient_moments import Moments

_FOLDER = pathlib.Path(__file__).parent
_BATCHES = flags.DEFINE_integer("batches", 128, "Batches for each model.")
_TRAIN_STEPS = flags.DEFINE_integer(
  "train_steps", 0, "Steps to train first; 0 measures no old batches."
)
_OUT = flags.DEFINE_string("out", None, "The file of results.", required=True)
_BLOCKS = 8
# How many updates older than the model the sampler of a batch is.
AGES = (1, 4, 16)

_TRUE, _BASE = "true gradient", "grpo"
_SUM, _MEAN = ({"aggregation": f"sequence_{name}"} for name in ("sum", "mean"))
# Name of the reward and keys of `learner`. `token_mean` divides a batch's
# gradient of `sequence_sum` by its number of tokens, so rloo with it is not
# here.
ON_POLICY: Mapping[str, tuple[str, Mapping[str, object]]] = {
  _TRUE: ("right", {"estimator": "rloo", **_SUM}),
  "within": ("within", {"estimator": "reward", **_SUM}),
  _BASE: ("right", {}),
  "grpo, sequence_mean": ("right", _MEAN),
  "rloo, sequence_mean": ("right", {"estimator": "rloo", **_MEAN}),
  "reinforce++": ("right", {"estimator": "reinforce++"}),
  "no baseline": ("right", {"estimator": "reward"}),
  "pass@4": ("right", {"estimator": "pass@k"}),
  "style reward": ("form", {}),
  "majority": ("majority", {}),
  "random": ("coin", {}),
}
_TO_SAMPLER = {"correction": "none", "ratio_to": "sampled"}
# Keys of `learner` for batches of older policies, with GRPO but for the last.
OLD: Mapping[str, Mapping[str, object]] = {
  "no correction": {"correction": "none"},
  "truncate": {"correction": "truncate"},
  "mask": {"correction": "mask"},
  "sequence_truncate": {"correction": "sequence_truncate"},
  "clipped ratio to the sampler": _TO_SAMPLER,
  "cispo": {**_TO_SAMPLER, "policy_loss": "cispo"},
  "gspo": {**_TO_SAMPLER, "policy_loss": "gspo", **_MEAN},
  "rloo, whole ratio of the sequence": {
    "estimator": "rloo",
    "policy_loss": "sequence_weighted",
    **_SUM,
  },
}


@dataclasses.dataclass(frozen=True)
class Variant:
  """A way to compute the gradient of a batch.

  Attributes:
    reward: name of the reward.
    gradient: (parameters, trajectories) -> the direction of ascent
      [parameters], and metrics.
  """

  reward: str
  gradient: Callable[..., tuple[jax.Array, dict[str, float]]]


def make_experiment(model: str, changes: Mapping[str, object]) -> Experiment:
  """Returns the parts of a run of the plan.

  Args:
    model: the model's folder.
    changes: other keys of `learner`.
  """
  plan = tomllib.loads((_FOLDER / "experiment.toml").read_text("utf-8"))
  c = custom_config.get_config("tiny")
  with c.ignore_type():
    c.update_from_flattened_dict(plan["set"])
    c.learner.update(changes)
  c.model.source = model
  return build.build(train_settings.read_train(c))


def make_variant(reward: str, experiment: Experiment) -> Variant:
  """Returns the gradient that a run of the experiment would compute."""
  settings, batching = experiment.settings.shared, experiment.batching
  loss = learner_parts.build_policy_loss(
    settings, experiment.model, experiment.mesh
  )

  @jax.jit
  def compute(
    params: types.Params, batch: types.Batch
  ) -> tuple[jax.Array, types.Metrics]:
    stop = update.nonempty_micro_batches(batch)
    _, sums, grads = update.accumulate(loss, params, batch, Fixed(), 0, stop)
    distance = sums[gap.MEAN] / jnp.sum(batch.loss_mask)
    return -ravel_pytree(grads)[0], {gap.MEAN: distance}

  def gradient(
    params: types.Params, trajectories: Sequence[types.Trajectory]
  ) -> tuple[jax.Array, dict[str, float]]:
    values = batching.estimate_advantages(trajectories)
    batch = batching.pack(trajectories, values, 0)
    found, metrics = compute(params, update.place(batch, experiment.mesh))
    return found, {name: float(value) for name, value in metrics.items()}

  return Variant(reward, gradient)


class Sums:
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
    """Yields the trajectories of each step, by the name of their reward."""
    rng = np.random.default_rng(seed)
    experiment, size = self._experiment, self._settings.prompts
    key = experiment.interactive_key(seed, is_chosen=True)
    with policy_lib.open_policy(
      experiment.sampler, experiment.source.tokenizer, params, key
    ) as policy:
      for _ in range(steps):
        chosen = rng.choice(len(self._rows), size, replace=False)
        yield self._graded(policy, [self._rows[index] for index in chosen])

  def _graded(
    self, policy: policy_lib.Policy, rows: Sequence[Mapping[str, object]]
  ) -> dict[str, list[types.Trajectory]]:
    """Returns trajectories of the answers to some rows."""
    tokenizer = self._experiment.source.tokenizer
    prompts = []
    for row in rows:
      text = self._settings.writer.text(Row(row["prompt"], {}), tokenizer)
      prompts.append(
        types.Prompt(text, tuple(tokenizer.encode_prompt(text)), row)
      )
    groups: dict[int, dict[int, types.Completion]] = collections.defaultdict(
      dict
    )
    for index, number, completion in policy.sample(
      prompts, self._settings.group_size
    ):
      groups[index][number] = completion
    found = collections.defaultdict(list)
    for index, prompt in enumerate(prompts):
      completions = [groups[index][i] for i in sorted(groups[index])]
      texts = [one.text for one in completions]
      for name, rewards in rewards_of(rows[index], texts).items():
        found[name] += [
          types.Trajectory(prompt, one, reward, index)
          for one, reward in zip(completions, rewards, strict=True)
        ]
    found["within"] = _without_lone(found["within"], self._settings.group_size)
    return found


def rewards_of(
  row: Mapping[str, object], texts: Sequence[str]
) -> dict[str, list[float]]:
  """Returns the rewards of the answers to a sum, by name."""
  answer, terms = str(row["answer"]), int(str(row["terms"]))
  right = [examples.is_right(text, answer)["reward"] for text in texts]
  return {
    "right": right,
    "within": above_style(right, [styles.style(text) for text in texts]),
    "form": [styles.form(text, terms) for text in texts],
    "majority": controls.majority(texts),
    "coin": controls.coin([str(row["prompt"])] * len(texts), texts),
  }


def above_style(rewards: Sequence[float], kinds: Sequence[str]) -> list[float]:
  """Returns each reward minus the mean of the others of its style.

  0 for the only answer of a style.
  """
  found = []
  for index, (reward, kind) in enumerate(zip(rewards, kinds, strict=True)):
    others = [
      other
      for place, (other, its) in enumerate(zip(rewards, kinds, strict=True))
      if its == kind and place != index
    ]
    found.append(reward - sum(others) / len(others) if others else 0.0)
  return found


def _without_lone(
  trajectories: Sequence[types.Trajectory], group_size: int
) -> list[types.Trajectory]:
  """Makes up for answers that are alone in their style, and so count 0.

  The rewards of a style with share p are divided by the chance that one of the
  group's other answers has it, 1 - (1 - p)^(group size - 1).
  """
  kinds = [styles.style(one.completion.text) for one in trajectories]
  shares = {kind: kinds.count(kind) / len(kinds) for kind in kinds}
  return [
    dataclasses.replace(
      one, reward=one.reward / (1 - (1 - shares[kind]) ** (group_size - 1))
    )
    for one, kind in zip(trajectories, kinds, strict=True)
  ]


def _measure(
  batches: Iterator[Mapping[str, Sequence[types.Trajectory]]],
  variants: Mapping[str, Variant],
  params: types.Params,
) -> dict[str, list[Moments]]:
  """Returns the blocks of each variant over all batches."""
  per_block = _BATCHES.value // _BLOCKS
  found: dict[str, list[Moments]] = {name: [] for name in variants}
  for number, batch in enumerate(batches):
    true = None
    for name, variant in variants.items():
      if number % per_block == 0:
        found[name].append(Moments())
      vector, metrics = variant.gradient(params, batch[variant.reward])
      true = vector if name == _TRUE else true
      found[name][-1].add(vector, true, metrics)
    if number % per_block == per_block - 1:
      sys.stderr.write(f"{number + 1} of {_BATCHES.value} batches\n")
  return found


def _train(
  experiment: Experiment, sums: Sums, steps: int
) -> Iterator[types.Params]:
  """Yields copies of the parameters before and after each of some steps."""
  state = experiment.learner.init(experiment.load_trained())
  for step in range(1, steps + 1):
    yield jax.tree.map(jnp.copy, state.params)
    [batch] = sums.sample(state.params, 10_000 + step, 1)
    values = experiment.batching.estimate_advantages(batch["right"])
    packed = experiment.batching.pack(batch["right"], values, step)
    state, _ = experiment.learner.update(
      state, update.place(packed, experiment.mesh), Fixed()
    )
  yield jax.tree.map(jnp.copy, state.params)


def _of_model(model: str) -> dict[str, dict[str, float]]:
  """Returns the numbers of every variant for a model."""
  experiment = make_experiment(model, {})
  sums = Sums(experiment)
  variants = {
    name: make_variant(reward, make_experiment(model, keys))
    for name, (reward, keys) in ON_POLICY.items()
  }
  steps = _TRAIN_STEPS.value
  first = max(0, steps - max(AGES))
  policies = [*itertools.islice(_train(experiment, sums, steps), first, None)]
  params = policies[-1]
  blocks = _measure(sums.sample(params, 1, _BATCHES.value), variants, params)
  true = blocks[_TRUE]
  found = gradient_moments.compared(blocks, true, _BASE, is_shared=True)
  old = {
    name: make_variant("right", make_experiment(model, keys))
    for name, keys in OLD.items()
  }
  for age in (0, *AGES) if steps else ():
    batches = sums.sample(policies[-1 - age], 2 + age, _BATCHES.value)
    rows = gradient_moments.compared(
      _measure(batches, old, params), true, "no correction", is_shared=False
    )
    found |= {f"{name}, age {age}": row for name, row in rows.items()}
  return found


def main(argv: Sequence[str]) -> None:
  """Measures each model and writes the results after it."""
  if _BATCHES.value % _BLOCKS or _BATCHES.value < 2 * _BLOCKS:
    raise app.UsageError(
      f"--batches: expected a multiple of {_BLOCKS}, at least {2 * _BLOCKS}"
    )
  if 0 < _TRAIN_STEPS.value < max(AGES):
    raise app.UsageError(f"--train_steps: expected 0, or {max(AGES)} or more")
  compilation_cache.enable()
  out = pathlib.Path(_OUT.value)
  results = json.loads(out.read_text("utf-8")) if out.exists() else {}
  for model in argv[1:]:
    start = pathlib.Path(model).parent.name
    name = f"{start}, {_TRAIN_STEPS.value} steps, {_BATCHES.value} batches"
    if name in results:
      continue
    found = _of_model(model)
    results[name] = {
      variant: {
        key: None if math.isnan(value) else round(value, 6)
        for key, value in row.items()
      }
      for variant, row in found.items()
    }
    out.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    for variant, row in found.items():
      keys = ("alignment", "signal2", "progress", "averaged")
      cells = " ".join(f"{row[key]:8.3f}" for key in keys)
      sys.stdout.write(f"{name}  {variant:40} {cells}\n")


if __name__ == "__main__":
  app.run(main)
