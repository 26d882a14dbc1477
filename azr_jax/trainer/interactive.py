"""A model to sample from, score with and update, one call at a time.

It does what a training loop does, but from a notebook:

  samples = model.sample(["2 + 2 ="], n=8)
  rewards = [[float("4" in one.text) for one in group] for group in samples]
  metrics = model.update(samples, rewards)

The four verbs give more control (`verbs/`): `sample`, `forward_backward` with a
loss and inputs of one's own for every token, `optim_step`, and `forward`.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float32

from azr_jax import types
from azr_jax.learner import update
from azr_jax.learner.objective import Fixed
from azr_jax.models import peft_io, safetensors_io
from azr_jax.models.tokenizers import Message, Tokenizer
from azr_jax.parallel import memory
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import policy as policy_lib
from azr_jax.run import metrics as metrics_lib
from azr_jax.systems import scores
from azr_jax.tasks.table.prompts import PromptWriter
from azr_jax.tasks.table.reading import Row
from azr_jax.trainer.build import Experiment
from azr_jax.verbs import data as data_lib
from azr_jax.verbs.data import Datum
from azr_jax.verbs.programs import Adam
from azr_jax.verbs.trainable import Scored, Trainable

# A text, or chat messages with role and content.
PromptInput = str | Sequence[Message]


@dataclasses.dataclass(frozen=True)
class Sample:
  """A sampled response.

  Attributes:
    prompt: the prompt, with its token ids.
    completion: the completion, with token ids, log-probabilities and finish
      reason.
  """

  prompt: types.Prompt
  completion: types.Completion

  @property
  def text(self) -> str:
    """The response's text."""
    return self.completion.text

  @property
  def finish_reason(self) -> str:
    """How the response ended, as in `types.Completion`."""
    return self.completion.finish_reason


class Model:
  """A model with its optimizer state and its sampler.

  Attributes:
    updates: the number of updates so far.
  """

  def __init__(
    self,
    experiment: Experiment,
    base: types.Params,
    trained: types.Params,
    writer: PromptWriter,
    prefill: str,
  ):
    """Initializes the optimizer. Nothing is compiled yet.

    Args:
      experiment: the experiment from `build.build`, without a KL penalty. Its
        teacher, if it is another model, is loaded.
      base: the frozen parameters; {} if all are trained.
      trained: the initial values of the others. They are donated.
      writer: writes prompts.
      prefill: the start of each response.
    """
    self._experiment = experiment
    self._writer, self._prefill = writer, prefill
    self._fixed = Fixed(base, teacher=experiment.load_teacher())
    self._state = experiment.learner.init(trained)
    self._trainable: Trainable | None = None
    self._calls = 0
    self.updates = 0

  @property
  def _params(self) -> types.Params:
    """All parameters of the model."""
    return self._fixed.whole(self._state.params)

  @property
  def tokenizer(self) -> Tokenizer:
    """The model's tokenizer."""
    return self._experiment.source.tokenizer

  def prompt(
    self, prompt: PromptInput, system_prompt: str = ""
  ) -> types.Prompt:
    """Tokenizes a prompt, with the model's chat template if it has one.

    Args:
      prompt: a text, or messages. If the last message is the assistant's, the
        model continues it.
      system_prompt: the first message of chats that lack one. If "", the
        configuration decides, as it does on whether to use a chat (`chat`).

    Raises:
      ValueError: the prompt has messages, but the model has no chat template.
    """
    writer = self._writer
    if system_prompt:
      writer = dataclasses.replace(writer, system_prompt=system_prompt)
    value = prompt if isinstance(prompt, str) else tuple(prompt)
    row = Row(value, {}, prefill=self._prefill)
    text = writer.text(row, self.tokenizer)
    ids = tuple(self.tokenizer.encode_prompt(text))
    end = policy_lib.question_end(text, row.question)
    return types.Prompt(text, ids, prompt, question_end=end)

  def sample(
    self,
    prompts: str | Sequence[PromptInput],
    n: int = 1,
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
    system_prompt: str = "",
    seed: int | None = None,
  ) -> list[list[Sample]]:
    """Samples n responses to each prompt.

    Args:
      prompts: texts or chat messages. A single string is one prompt.
      n: the number of responses to each prompt.
      temperature: divides the logits; 0 is greedy. None uses the
        configuration's.
      max_tokens: the limit of a response. None uses the configuration's.
      system_prompt: the first message of chats that lack one.
      seed: the random seed, from 0. None draws other samples in each call.

    Raises:
      ValueError: a prompt is longer than the largest bucket.
    """
    experiment = self._experiment
    every = [prompts] if isinstance(prompts, str) else prompts
    tokenized = [self.prompt(prompt, system_prompt) for prompt in every]
    longest = experiment.sampler.prompt_buckets[-1]
    for prompt in tokenized:
      if len(prompt.token_ids) > longest:
        raise ValueError(
          f"{prompt.text[:60]!r} has {len(prompt.token_ids)} tokens: expected "
          f"at most prompt_tokens={longest}"
        )
    if seed is None:
      key = experiment.interactive_key(self._calls, is_chosen=False)
      self._calls += 1
    else:
      key = experiment.interactive_key(seed, is_chosen=True)
    samples: dict[tuple[int, int], Sample] = {}
    with policy_lib.open_policy(
      experiment.sampler,
      self.tokenizer,
      self._params,
      key,
    ) as policy:
      limits = None if max_tokens is None else [max_tokens] * len(tokenized)
      for index, number, completion in policy.sample(
        tokenized, n, temperature=temperature, max_new_tokens=limits
      ):
        samples[index, number] = Sample(tokenized[index], completion)
    return [
      [samples[index, number] for number in range(n)]
      for index in range(len(tokenized))
    ]

  def score(
    self,
    prompts: Sequence[PromptInput | types.Prompt],
    completions: Sequence[str | Sample],
  ) -> list[Float32[np.ndarray, " _S"]]:
    """Returns the log-probabilities of the tokens of completions.

    They are computed at the configuration's sampling temperature.

    Args:
      prompts: one prompt per completion.
      completions: texts, or samples. A sample's own token ids are scored.

    Returns:
      An array for each completion, in nats.

    Raises:
      ValueError: a sequence is longer than a row.
    """
    trajectories = []
    for prompt, completion in zip(prompts, completions, strict=True):
      if isinstance(completion, Sample):
        done = completion.completion
      else:
        done = _completion(completion, self.tokenizer)
      if not isinstance(prompt, types.Prompt):
        prompt = self.prompt(prompt)
      trajectories.append(types.Trajectory(prompt, done, 0.0, 0))
    packed, rows = self._experiment.batching.pack_to_score(trajectories)
    batch = self._fitting(packed)
    placed = update.place(batch, self._experiment.mesh)
    with memory.explained(memory.TRAINING_KEYS):
      scored = jax.device_get(self._experiment.scores(self._params, placed)[0])
    return _by_sequence(np.asarray(scored), batch, rows)

  def _fitting(self, batch: types.Batch) -> types.Batch:
    """Drops most of the empty rows of a batch.

    A call may have far fewer sequences than a micro-batch has rows. Every row
    count compiles a new program, so it is rounded up to a power of two.
    """
    if batch.minibatch is not None:  # Its rows are in several micro-batches.
      return batch
    filled = int(np.count_nonzero(batch.segment_ids[:, :, 0]))
    rows = 1 << max(filled - 1, 0).bit_length()
    rows = mesh_lib.padded_rows(rows, self._experiment.mesh)
    if rows >= self._experiment.batching.micro_rows:
      return batch
    return jax.tree.map(lambda x: x[:1, :rows], batch)

  def update(
    self,
    samples: Sequence[Sequence[Sample]],
    rewards: Sequence[Sequence[float]],
    feedback: Sequence[Sequence[str]] | None = None,
  ) -> dict[str, float]:
    """Updates the model once, with the configured estimator and loss.

    Args:
      samples: groups of samples, as `sample` returns them. Responses are
        compared within a group.
      rewards: one reward per sample, in the same groups.
      feedback: what the teacher of distillation reads about each sample, in the
        same groups; "" if nothing. None: nothing about any.

    Returns:
      The metrics of the update, such as `learner/entropy`.

    Raises:
      ValueError: there are not as many rewards or texts as samples, or a reward
        is not finite or its magnitude exceeds `scores.MAX_REWARD`.
    """
    trajectories = []
    texts = feedback or [[""] * len(group) for group in samples]
    groups = zip(samples, rewards, texts, strict=True)
    for number, group in enumerate(groups):
      for sample, reward, text in zip(*group, strict=True):
        if not abs(reward) <= scores.MAX_REWARD:  # Rejects NaN too.
          raise ValueError(
            f"reward {reward!r:.60}: expected a finite number of at most "
            f"{scores.MAX_REWARD:.3g} in size"
          )
        trajectories.append(
          types.Trajectory(
            sample.prompt,
            sample.completion,
            float(reward),
            number,
            feedback=text,
          )
        )
    experiment, batching = self._experiment, self._experiment.batching
    trajectories, metrics = batching.shape_rewards(trajectories)
    trained, group_metrics = batching.drop_equal_groups(trajectories)
    advantages = batching.estimate_advantages(trained)
    batch = batching.pack(trained, advantages, self.updates + 1)
    with memory.explained(memory.TRAINING_KEYS):
      self._state, learned = experiment.learner.update(
        self._state,
        update.place(self._fitting(batch), experiment.mesh),
        self._fixed,
      )
      learned = jax.device_get(learned)
    self.updates += 1
    return metrics | group_metrics | metrics_lib.to_host(learned)

  def datum(self, sample: Sample, advantage: float) -> Datum:
    """Returns a sample as a datum for `forward_backward`.

    Args:
      sample: a sample, whose prompt has at least one token.
      advantage: the advantage of each token that the model wrote.
    """
    return data_lib.sampled(
      sample.prompt.token_ids, sample.completion, advantage
    )

  def supervised_datum(
    self, prompt: PromptInput, completion: str, weight: float = 1.0
  ) -> Datum:
    """Returns a text to learn as a datum for `cross_entropy`.

    Args:
      prompt: a text or messages, as in `sample`.
      completion: the text to learn; without an end token of its own.
      weight: the weight of each of its tokens.
    """
    ids = self.tokenizer.encode(completion)
    return data_lib.supervised(self.prompt(prompt).token_ids, ids, weight)

  def forward(self, data: Sequence[Datum]) -> Scored:
    """Returns the log-probabilities of targets; see `Trainable.forward`."""
    return self._verbs().forward(data)

  def forward_backward(
    self,
    data: Sequence[Datum],
    loss: str = "cross_entropy",
    **config: float,
  ) -> Scored:
    """Adds the gradients of a loss to those since the last `optim_step`.

    Args:
      data: at least one datum.
      loss: a key of `verbs.losses.LOSSES`. It is a sum over all tokens.
      **config: the loss's numbers, such as `clip_low_threshold`.

    Raises:
      ValueError: the data do not fit the model or the loss.
    """
    return self._verbs().forward_backward(data, loss, config)

  def optim_step(
    self, learning_rate: float, **numbers: float
  ) -> dict[str, float]:
    """Takes a step of AdamW with the summed gradients, and clears them.

    Its moments are its own, and `distill.teacher=average` does not follow it.

    Args:
      learning_rate: the learning rate of this step.
      **numbers: other fields of `verbs.programs.Adam`.

    Returns:
      The norm of the gradients, and whether they were skipped.
    """
    trainable = self._verbs()
    metrics = trainable.optim_step(Adam(learning_rate, **numbers))
    self._state = self._state.replace(params=trainable.state.params)
    self.updates += 1
    return metrics

  def _verbs(self) -> Trainable:
    """Returns the model as the verbs train it, with the present parameters."""
    experiment = self._experiment
    if self._trainable is None:
      self._trainable = experiment.trainable(self._fixed, self._state.params)
    state = self._trainable.state
    self._trainable.state = state.replace(params=self._state.params)
    return self._trainable

  def save(self, folder: str, dtype: str = "bfloat16") -> None:
    """Writes the model in Hugging Face format, as `azr_jax.export` does.

    Of a model with adapters it writes only these, in PEFT's format.

    Args:
      folder: created if missing.
      dtype: dtype of a whole model; adapters are float32.
    """
    path = pathlib.Path(folder).expanduser()
    path.mkdir(parents=True, exist_ok=True)
    experiment, source = self._experiment, self._experiment.source
    if experiment.model.lora is None:
      safetensors_io.save(
        self._state.params,
        source.config,
        path,
        dtype=dtype,
        eos_ids=source.tokenizer.eos_ids,
      )
    else:
      peft_io.save(
        self._state.params,
        source.config,
        experiment.model.lora,
        source.peft_base(),
        path,
      )
    source.tokenizer.save(path)


def _by_sequence(
  values: Float32[np.ndarray, "A B S"],
  batch: types.Batch,
  rows: Sequence[Sequence[int]],
) -> list[Float32[np.ndarray, " _S"]]:
  """Returns the values of each sequence's trained targets.

  Args:
    values: a value per target.
    batch: the batch of the targets.
    rows: the sequence indices of each row that holds any, in order.
  """
  length = values.shape[-1]
  flat = values.reshape(-1, length)
  segment_ids = np.reshape(batch.segment_ids, (-1, length))
  trained = np.reshape(batch.loss_mask, (-1, length)) > 0
  found = {
    index: flat[row, trained[row] & (segment_ids[row] == segment)]
    for row, members in enumerate(rows)
    for segment, index in enumerate(members, start=1)
  }
  return [found[index] for index in sorted(found)]


def _completion(text: str, tokenizer: Tokenizer) -> types.Completion:
  """Returns a text as a completion, as if the model had written it."""
  ids = np.asarray(tokenizer.encode(text), np.int32)
  zeros = np.zeros(len(ids), np.float32)
  return types.Completion(ids, zeros, np.ones(len(ids), bool), "stop", text)
