"""Whole configurations: the sections of each command, and checks across them.

`train_config` and `supervised_config` return a config with the defaults of all
sections; a config file overrides some of them. `read_train`, `read_supervised`
and `read` check a config and return settings. Each default is defined once, in
the settings class of its section.
"""

import dataclasses
from typing import Any

import ml_collections

from azr_jax.config import overrides
from azr_jax.config import settings as settings_lib
from azr_jax.config.settings import Invalid, Settings, SettingsT, setting
from azr_jax.corpora import registry as corpora
from azr_jax.evals import registry as benchmarks
from azr_jax.evals import styles, template_folder
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.learner import advantages, corrections
from azr_jax.learner.distillation import INITIAL, DistillSettings
from azr_jax.learner.settings import (
  CriticSettings,
  LearnerSettings,
  OptimizerSettings,
  SupervisedSettings,
)
from azr_jax.learner.shaping import ShapingSettings
from azr_jax.models import presets, safetensors_io
from azr_jax.models.settings import LoraSettings, ModelSettings
from azr_jax.parallel.compiler import CompilerSettings
from azr_jax.parallel.settings import (
  HostsSettings,
  MeshSettings,
  ShardingSettings,
)
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.run import text_monitor
from azr_jax.run.settings import RunSettings, TrainingRunSettings
from azr_jax.systems import registry as systems
from azr_jax.systems.system import System
from azr_jax.tasks.templates import PromptSettings, Templates
from azr_jax.trainer.evaluation_settings import (
  BenchmarkSettings,
  PeriodicSettings,
  check_beside_templates,
)


def _seed() -> int:
  return setting(0, "seed of all random draws", minimum=0)


@dataclasses.dataclass(frozen=True)
class TrainSettings(Settings):
  """Configuration of `azr_jax.train`, without the system's own section."""

  system: str = setting("azr", "system name, or MODULE:CLASS", required=True)
  seed: int = _seed()
  model: ModelSettings = ModelSettings(source="embedded:azr-tiny")
  lora: LoraSettings = LoraSettings()
  mesh: MeshSettings = MeshSettings()
  sharding: ShardingSettings = ShardingSettings()
  compiler: CompilerSettings = CompilerSettings()
  rollout: SamplerSettings = SamplerSettings()
  shaping: ShapingSettings = ShapingSettings()
  learner: LearnerSettings = LearnerSettings()
  distill: DistillSettings = DistillSettings()
  optimizer: OptimizerSettings = OptimizerSettings()
  critic: CriticSettings = CriticSettings()
  prompts: PromptSettings = PromptSettings()
  evaluation: PeriodicSettings = PeriodicSettings()
  executor: ExecutorSettings = ExecutorSettings(profile="programs")
  hosts: HostsSettings = HostsSettings()
  train: RunSettings = RunSettings()

  def check(self) -> None:
    """Rejects sections that contradict one another."""
    rollout = self.rollout
    if not self.model.source:
      raise Invalid("model.source", "='': expected a model")
    for key, neutral in (("top_k", 0), ("top_p", 1)):
      if getattr(rollout, key) != neutral:
        raise Invalid(
          f"rollout.{key}",
          f"={getattr(rollout, key)!r}: expected {neutral}, because the "
          "learner scores all tokens",
        )
    if rollout.temperature == 0:
      raise Invalid(
        "rollout.temperature", "=0.0: expected a number above 0 in training"
      )
    check_lora(self.lora, self.model, self.optimizer, "optimizer")
    check_lora(self.lora, self.model, self.critic.optimizer, "critic.optimizer")
    self._check_critic_source()
    own, sampled = self.lora.kernel_dtype, rollout.kernel_dtype
    if own is not None and sampled not in (None, own):
      raise Invalid(
        "rollout.quantization",
        f"={rollout.quantization!r}: expected 'none' or "
        f"lora.base_dtype={self.lora.base_dtype!r}",
      )
    self._check_rows()
    if self.shaping.overlong_buffer > rollout.max_tokens:
      raise Invalid(
        "shaping.overlong_buffer",
        f"={self.shaping.overlong_buffer}: expected at most "
        f"rollout.max_tokens={rollout.max_tokens}",
      )
    # The property raises Invalid if samples would be weighted twice.
    assert self.correction
    text_monitor.load_classifier(self.train.flag_classifier)
    self._check_style()
    if self.evaluation.every and self.evaluation.benchmarks:
      try:
        benchmarks.names(self.evaluation.benchmarks)
      except ValueError as error:
        names = self.evaluation.benchmarks
        raise Invalid("evaluation.benchmarks", f"={names!r}: {error}") from None

  def _check_style(self) -> None:
    """Rejects a rule of styles that does not exist."""
    rule = self.train.style
    if rule in ("", styles.FIRST_WORD):
      return
    try:
      styles.load(rule)
    except ValueError as error:
      raise Invalid(
        "train.style", f"={rule!r}: expected 'first_word' or {error}"
      ) from None

  def _check_rows(self) -> None:
    """Rejects rows that the longest sequence does not fit."""
    longest = self.rollout.prompt_buckets[-1] + self.rollout.max_tokens
    if self.learner.row_length < longest:
      raise Invalid(
        "learner.row_length",
        f"={self.learner.row_length}: expected at least the longest sequence, "
        f"rollout.prompt_buckets[-1] + rollout.max_tokens = {longest}",
      )
    longest += self.distill.added_tokens
    if self.distill.weight and self.teacher_row_length < longest:
      raise Invalid(
        "distill.row_length",
        f"={self.distill.row_length}: expected 0, or at least the longest "
        f"sequence and what distill.context adds = {longest}",
      )

  def _check_critic_source(self) -> None:
    """Rejects a critic to start from that would not be used."""
    source = self.critic.source
    if not source:
      return
    for is_wrong, key, reason in (
      (
        self.learner.estimator != advantages.GAE,
        "learner.estimator",
        "has no critic",
      ),
      (self.lora.rank > 0, "lora.rank", "trains adapters of the critic alone"),
      (
        self.train.keep_moments,
        "train.keep_moments",
        "continues the critic of train.init_from_run",
      ),
    ):
      if is_wrong:
        raise Invalid(
          "critic.source", f"={source!r}: expected '', because {key} {reason}"
        )

  @property
  def keeps_reference(self) -> bool:
    """Whether the learner keeps the parameters that training starts from."""
    has_teacher = self.distill.weight > 0 and self.distill.teacher == INITIAL
    return self.learner.kl_coef > 0 or has_teacher

  @property
  def teacher_row_length(self) -> int:
    """Tokens per packed row of the teacher; 0 without distillation."""
    if not self.distill.weight:
      return 0
    return self.distill.longest_row(self.learner.row_length)

  @property
  def may_be_off_policy(self) -> bool:
    """Whether samples may come from a policy other than the one to update.

    The sampler's parameters may be older or quantized. Otherwise sampler and
    learner both compute in `model.dtype`.
    """
    return self.rollout.may_be_stale or self.rollout.is_quantized

  @property
  def correction(self) -> str:
    """The off-policy correction: one of `corrections.KINDS`, or `NONE`."""
    return corrections.resolve(
      self.learner.correction, self.may_be_off_policy, self.learner.is_weighted
    )


def check_lora(
  lora: LoraSettings,
  model: ModelSettings,
  optimizer: OptimizerSettings,
  section: str,
) -> None:
  """Raises Invalid if a model or an optimizer does not suit adapters.

  Args:
    lora: the section that may ask for adapters.
    model: the section that sets the dtype of parameters.
    optimizer: the section that may ask for Muon.
    section: name of the optimizer's section.
  """
  if lora.rank and model.param_dtype != "float32":
    raise Invalid(
      "model.param_dtype",
      f"={model.param_dtype!r}: expected 'float32' with lora.rank={lora.rank}, "
      "because adapters are small; lora.base_dtype is the frozen model's",
    )
  if lora.rank and optimizer.muon_learning_rate:
    raise Invalid(
      f"{section}.muon_learning_rate",
      f"={optimizer.muon_learning_rate}: expected 0 with lora.rank="
      f"{lora.rank}, because Muon is for whole matrices",
    )


@dataclasses.dataclass(frozen=True)
class ExperimentSettings:
  """Checked configuration of `azr_jax.train`.

  Attributes:
    shared: the sections common to all systems.
    system: the class of the system.
    system_settings: the system's own section.
    templates: the user's prompts; None if the built-in ones are used.
  """

  shared: TrainSettings
  system: type[System]
  system_settings: Settings
  templates: Templates | None = None


def train_config(system: str) -> ml_collections.ConfigDict:
  """Returns the default training config, including the system's section.

  Args:
    system: a system's name, or MODULE:CLASS.
  """
  cls = systems.load(system)
  config = overrides.to_config(TrainSettings(system=system))
  config[cls.name] = overrides.to_config(cls.Settings())
  return config


def switch_system(
  config: ml_collections.ConfigDict, system: str
) -> ml_collections.ConfigDict:
  """Returns a training config switched to another system.

  Args:
    config: a whole training config. It is not modified.
    system: a system's name, or MODULE:CLASS.

  Raises:
    Invalid: there is no such system.
  """
  try:
    cls = systems.load(system)
  except Invalid as error:
    raise error.inside("config") from None
  values = config.to_dict()
  values.pop(systems.load(str(values["system"])).name, None)
  values["system"] = system
  switched = ml_collections.ConfigDict(values)
  if cls.name not in switched:
    switched[cls.name] = overrides.to_config(cls.Settings())
  return switched


def read_train(config: ml_collections.ConfigDict) -> ExperimentSettings:
  """Checks a whole training config and returns its settings.

  Only the section of `config.system` is read; it has its defaults if the config
  lacks it. Sections of other systems are ignored.

  Raises:
    Invalid: a key is unknown, a value is not allowed, or two values contradict
      each other.
  """
  values = config.to_dict()
  try:
    cls = systems.load(str(values.get("system", "")))
    known = [field.name for field in dataclasses.fields(TrainSettings)]
    if cls.name in known:
      raise Invalid(
        "system",
        f"={values['system']!r}: expected a class whose name is no section of "
        f"every config, such as {cls.name!r}",
      )
    section = values.pop(cls.name, {})
    for name in systems.SYSTEMS:
      values.pop(name, None)
    for key, value in values.items():
      if key not in known:
        names = dict.fromkeys((*known, cls.name))
        raise settings_lib.unknown(key, value, names)
    c = settings_lib.build(TrainSettings, values)
    try:
      settings = settings_lib.build(cls.Settings, section)
    except Invalid as error:
      raise error.inside(cls.name) from None
    step_tokens = c.rollout.step_tokens
    about = cls.about(settings)
    if step_tokens and not about.can_pause:
      raise Invalid(
        "rollout.step_tokens",
        f"={step_tokens}: expected 0, because system {cls.name!r} keeps no "
        "paused groups",
      )
    cls.check(settings, c.rollout)
    evaluation = c.evaluation
    templates = template_folder.read(
      **vars(c.prompts),
      needed=cls.prompt_files(settings),
      benchmarks=map(evaluation.benchmark, evaluation.names),
    )
    check_beside_templates(evaluation, "evaluation", templates)
    if evaluation.every and not (evaluation.benchmarks or about.has_evaluation):
      raise Invalid(
        "evaluation.benchmarks",
        f"='' with evaluation.every={evaluation.every}: expected benchmarks"
        + "".join(f", or a value of {key}" for key in about.evaluation_keys),
      )
  except Invalid as error:
    raise error.inside("config") from None
  return ExperimentSettings(c, cls, settings, templates)


@dataclasses.dataclass(frozen=True)
class SamplingSettings(Settings):
  """Sections shared by all commands that sample a given model."""

  seed: int = _seed()
  model: ModelSettings = ModelSettings()
  mesh: MeshSettings = MeshSettings()
  sharding: ShardingSettings = ShardingSettings()
  rollout: SamplerSettings = SamplerSettings()

  def check(self) -> None:
    """Rejects `model.source`, because the flag --model names the model."""
    if self.model.source:
      raise Invalid(
        "model.source",
        f"={self.model.source!r}: expected '', because --model names the model",
      )


@dataclasses.dataclass(frozen=True)
class EvaluateSettings(SamplingSettings):
  """Configuration of `azr_jax.evaluate`."""

  evaluate: BenchmarkSettings = BenchmarkSettings()
  prompts: PromptSettings = PromptSettings()
  executor: ExecutorSettings = ExecutorSettings(profile="programs")
  hosts: HostsSettings = HostsSettings()

  def check(self) -> None:
    """Rejects several greedy answers per item, which would be equal."""
    super().check()
    samples = self.evaluate.samples
    if samples > 1 and self.rollout.temperature == 0:
      raise Invalid(
        "evaluate.samples",
        f"={samples}: expected 1, because rollout.temperature=0.0",
      )


@dataclasses.dataclass(frozen=True)
class CorpusSettings(Settings):
  """Section `data` of supervised training. Each corpus has its own section."""

  kind: str = setting(
    "programs", "corpus to train on", choices=tuple(corpora.KINDS)
  )
  tokenizer_samples: int = setting(
    6000, "conversations to train a new tokenizer on", minimum=1
  )
  epochs: float = setting(
    0.0,
    "passes over the corpus, which replace train.steps; the warm-up and a "
    "decay to the last step scale with it; the run's config has the steps and "
    "the schedule that follow; 0: train.steps",
    paper="R1-CI: 3",
    minimum=0,
  )
  conversations: int = setting(
    0,
    "conversations per step, in as many micro-batches as they need; 0: full "
    "rows, learner.micro_rows of them",
    paper="R1-CI: 32",
    minimum=0,
  )


@dataclasses.dataclass(frozen=True)
class SupervisedRunSettings(TrainingRunSettings):
  """Section `train` of supervised training."""

  model_dtype: str = setting(
    "float16",
    "dtype of the weights exported at the end",
    choices=tuple(safetensors_io.DTYPES),
  )


@dataclasses.dataclass(frozen=True)
class SupervisedTrainSettings(Settings):
  """Configuration of `azr_jax.sft`, without the section of its corpus."""

  seed: int = _seed()
  model: ModelSettings = ModelSettings(source="preset:azr-tiny")
  lora: LoraSettings = LoraSettings()
  mesh: MeshSettings = MeshSettings()
  sharding: ShardingSettings = ShardingSettings()
  compiler: CompilerSettings = CompilerSettings()
  learner: SupervisedSettings = SupervisedSettings()
  optimizer: OptimizerSettings = OptimizerSettings()
  executor: ExecutorSettings = ExecutorSettings(profile="programs")
  hosts: HostsSettings = HostsSettings(timeout_s=3600.0)
  train: SupervisedRunSettings = SupervisedRunSettings(
    steps=10_000, save_every=1000
  )
  data: CorpusSettings = CorpusSettings()

  def check(self) -> None:
    """Rejects an unknown preset, and adapters of an untrained model."""
    check_lora(self.lora, self.model, self.optimizer, "optimizer")
    kind, _, name = self.model.source.partition(":")
    if kind == "preset" and self.lora.rank:
      raise Invalid(
        "lora.rank",
        f"={self.lora.rank}: expected 0 with model.source="
        f"{self.model.source!r}, which has random weights",
      )
    if kind == "preset" and name not in presets.PRESETS:
      raise Invalid(
        "model.source",
        f"={self.model.source!r}: expected preset: and one of "
        f"{tuple(presets.PRESETS)}, or a model that can be loaded",
      )


@dataclasses.dataclass(frozen=True)
class SupervisedExperimentSettings:
  """Checked configuration of `azr_jax.sft`.

  Attributes:
    shared: the sections common to all corpora.
    corpus: the corpus's own section.
  """

  shared: SupervisedTrainSettings
  corpus: Settings


def supervised_config(kind: str) -> ml_collections.ConfigDict:
  """Returns the default config of supervised training on a kind of corpus."""
  c = SupervisedTrainSettings(data=CorpusSettings(kind=kind))
  config = overrides.to_config(c)
  config[kind] = overrides.to_config(corpora.KINDS[kind].Settings())
  return config


def read_supervised(
  config: ml_collections.ConfigDict,
) -> SupervisedExperimentSettings:
  """Checks a config of `azr_jax.sft` and returns its settings.

  Raises:
    Invalid: as `read_train`.
  """
  values: dict[str, Any] = config.to_dict()
  kind = str(values.get("data", {}).get("kind", ""))
  if kind not in corpora.KINDS:
    raise Invalid(
      "config.data.kind", f"={kind!r}: expected one of {tuple(corpora.KINDS)}"
    )
  others = [name for name in corpora.KINDS if name != kind and name in values]
  if others:
    raise Invalid(
      "config.data.kind",
      f"={kind!r}: expected {others[0]!r}, whose section the config has; "
      "another variant of configs/sft.py has another corpus",
    )
  section = values.pop(kind, {})
  c = overrides.build(SupervisedTrainSettings, values)
  try:
    corpus = settings_lib.build(corpora.KINDS[kind].Settings, section)
  except Invalid as error:
    raise error.inside(kind).inside("config") from None
  return SupervisedExperimentSettings(c, corpus)


def read(cls: type[SettingsT], config: ml_collections.ConfigDict) -> SettingsT:
  """Checks a config and returns its settings as an instance of `cls`.

  Raises:
    Invalid: as `read_train`.
  """
  return overrides.build(cls, config)
