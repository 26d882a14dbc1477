"""Pass rates of the online orders, measured by the policy before a stage.

The life of a measurement:
1. its folder, `potential/stage_N` in that of the run, names the parameters that
   answer; records of other parameters or passes are removed;
2. every pass adds a record for each question to its file, as in
   `azr_jax.potential`, so that a run which was killed goes on with the next
   question when it comes to this stage again;
3. the rates are written to `pass_rates.jsonl` beside them, which the orders
   that are not online can read.

An object store keeps whole files alone. There the records of a pass are written
when the pass is done, and completed passes need not be run again.
"""

import contextlib
import hashlib
import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp

from azr_jax.curricula.improvement_potential import PassRate
from azr_jax.rollout.policy import Agent, Policy
from azr_jax.run import console, storage
from azr_jax.systems.code_interpreter import measurement
from azr_jax.systems.code_interpreter.measurement import EvalPass
from azr_jax.systems.system import Context
from azr_jax.tasks.questions import pass_rates
from azr_jax.tasks.questions.question import Question
from azr_jax.types import Params

FOLDER = "potential"
RATES = "pass_rates.jsonl"
_IDENTITY = "identity.json"
# Folded into the key of the step, which the step's own rollouts use, too.
_FIRST_KEY = 1 << 24


def estimate(
  policy: Policy,
  questions: Sequence[Question],
  eval_passes: Sequence[EvalPass],
  agents: Mapping[str, Agent],
  prompt_format: str,
  context: Context,
  stage: int,
) -> list[PassRate]:
  """Returns how often the policy solves each question.

  Args:
    policy: answers; its key and its calls stay as they are.
    questions: the questions of the run.
    eval_passes: agents and temperatures to sample them with.
    agents: the agents of the passes, by name.
    prompt_format: one of `prompts.PROMPT_FORMATS`.
    context: of the run, whose folder has the records.
    stage: the stage that is measured for.
  """
  identity = {
    "params": _fingerprint(policy.params),
    "questions": _digest(questions),
    "passes": [eval_pass.name for eval_pass in eval_passes],
    "prompt_format": prompt_format,
  }
  with _folder(context, stage, json.dumps(identity)) as (folder, kept):
    for number, eval_pass in enumerate(eval_passes):
      path = folder / f"{eval_pass.name}.jsonl"
      key = jax.random.fold_in(policy.key, _FIRST_KEY + number)
      answering = policy.with_key(key, eval_pass.temperature)
      measurement.run(
        eval_pass,
        questions,
        answering,
        context.executor,
        context.hosts,
        prompt_format,
        path,
        agents[eval_pass.agent],
      )
      _keep(context, path, kept)
    return _write_rates(context, questions, eval_passes, folder, kept)


def _write_rates(
  context: Context,
  questions: Sequence[Question],
  eval_passes: Sequence[EvalPass],
  folder: pathlib.Path,
  kept: pathlib.Path,
) -> list[PassRate]:
  """Returns the rates on every host; only the first one sees the records."""

  def read() -> str:
    paths = [folder / f"{eval_pass.name}.jsonl" for eval_pass in eval_passes]
    found = measurement.rates(questions, paths)
    pass_rates.write(folder / RATES, questions, found)
    _keep(context, folder / RATES, kept)
    return json.dumps([[rate.num_correct, rate.num_samples] for rate in found])

  text = context.hosts.from_primary("the pass rates of a stage", read)
  return [PassRate(*numbers) for numbers in json.loads(text)]


def _keep(context: Context, path: pathlib.Path, kept: pathlib.Path) -> None:
  """Copies a file to where it stays, if that is another folder."""
  if context.hosts.is_primary and kept != path.parent:
    storage.write_atomically(kept / path.name, path.read_text("utf-8"))


@contextlib.contextmanager
def _folder(
  context: Context, stage: int, identity: str
) -> Iterator[tuple[pathlib.Path, pathlib.Path]]:
  """Yields the folder that records are written to, and where they stay.

  These are one folder, except for a run in an object store, and for a context
  without a folder, whose records do not stay.
  """
  with contextlib.ExitStack() as stack:
    scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
    if context.folder is None:
      yield scratch, scratch
      return
    kept = context.folder / FOLDER / f"stage_{stage}"
    context.hosts.from_primary(
      "the folder of a stage's records", lambda: _prepare(kept, identity)
    )
    if not storage.is_object_store(kept):
      yield kept, kept
      return
    for path in kept.glob("*.jsonl"):
      (scratch / path.name).write_text(path.read_text("utf-8"), "utf-8")
    context.hosts.barrier("the records of a stage are copied")
    yield scratch, kept


def _prepare(folder: pathlib.Path, identity: str) -> str:
  """Makes a folder of this identity; records of another one are removed."""
  path = folder / _IDENTITY
  if path.exists():
    if path.read_text("utf-8") == identity:
      console.print_status(f"the measurement in {folder} goes on")
      return identity
    console.print_status(
      f"the records in {folder} are of another policy or of other questions; "
      "the measurement begins again"
    )
    remove = getattr(folder, "rmtree", None) or (lambda: shutil.rmtree(folder))
    remove()
  folder.mkdir(parents=True, exist_ok=True)
  storage.write_atomically(path, identity)
  return identity


def _fingerprint(params: Params) -> str:
  """Returns a number that other parameters are unlikely to have, as text."""

  @jax.jit
  def total(leaves: list[jax.Array]) -> list[jax.Array]:
    return [
      jnp.sum(jnp.abs(leaf.astype(jnp.float32)) * (index + 1))
      for index, leaf in enumerate(leaves)
    ]

  sums = jax.device_get(total(jax.tree.leaves(params)))
  text = " ".join(float(value).hex() for value in sums)
  return hashlib.sha256(text.encode()).hexdigest()


def _digest(questions: Sequence[Question]) -> str:
  text = json.dumps([[question.id, question.text] for question in questions])
  return hashlib.sha256(text.encode()).hexdigest()
