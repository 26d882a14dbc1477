"""Slots, cache and rows fit the workload and memory, and a run keeps them."""

import dataclasses
import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from azr_jax import api
from azr_jax.configs import (
  azr,
  code_interpreter,
  countdown,
  custom,
  environment,
  evaluate,
  orz,
)
from azr_jax.learner.learner import abstract_state
from azr_jax.learner.settings import LearnerSettings
from azr_jax.models import load, presets, transformer
from azr_jax.parallel import memory
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.settings import ShardingSettings
from azr_jax.rollout import layout
from azr_jax.rollout.build import build_engine
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.trainer import (
  build,
  loading,
  loop,
  scoring,
  settings,
  sizes,
  start,
)
from azr_jax.trainer.settings import EvaluateSettings

GIB = 1 << 30
RULES = ShardingSettings().rules()
MODEL = transformer.Transformer(presets.PRESETS["smollm2-135m"])
CHAT = SamplerSettings(
  slots=64,
  prompt_buckets=(256, 512, 1024, 2048, 4096),
  max_tokens=8000,
  page_size=256,
  decode_chunk=64,
)


@pytest.fixture(name="mesh")
def make_mesh(on_one_device):
  return mesh_lib.make_mesh({"fsdp": -1})


def cache_of(mesh, c, model=MODEL):
  return layout.cache_bytes(build_engine(model, mesh, RULES, c))


@pytest.mark.parametrize(
  "responses, longest, slots, buckets",
  [
    (2, 60, 2, (256,)),
    (1319, 513, 64, (256, 512, 1024)),
    (2, 0, 2, CHAT.prompt_buckets),
    (3, 9000, 3, CHAT.prompt_buckets),  # Too long to be sampled.
  ],
)
def test_a_workload_has_the_slots_and_buckets_it_needs(
  responses, longest, slots, buckets
):
  found = sizes.for_workload(CHAT, sizes.Workload(responses, longest))
  assert (found.slots, found.prompt_buckets) == (slots, buckets)


@pytest.mark.parametrize("limit, found", [(0, 8000), (300, 300), (9000, 8000)])
def test_a_workload_has_the_tokens_it_needs(limit, found):
  workload = sizes.Workload(2, max_tokens=limit)
  assert sizes.for_workload(CHAT, workload).max_tokens == found


def test_two_questions_need_a_fraction_of_a_gibibyte(mesh):
  """All of the variant's slots would take 36 GiB, in float32."""
  two = sizes.for_workload(CHAT, sizes.Workload(2, 60))
  assert cache_of(mesh, CHAT) > 33 * GIB and cache_of(mesh, two) < GIB
  large = dataclasses.replace(two, cache_gib=20.0)
  assert sizes.without_spare_pages(MODEL, mesh, RULES, large) == two
  small = dataclasses.replace(two, cache_gib=0.6)
  assert sizes.without_spare_pages(MODEL, mesh, RULES, small) == small


@pytest.mark.parametrize("dtype, copies", [("float32", 1), ("bfloat16", 4)])
def test_a_cache_that_does_not_fit_becomes_what_memory_has(mesh, dtype, copies):
  """On CPUs, XLA takes four times the memory of bfloat16 pages."""
  model = MODEL.clone(dtype=jnp.dtype(dtype))
  assert sizes.fit_cache(model, mesh, RULES, CHAT, 900 * GIB) == CHAT
  room = 12 * GIB
  found = sizes.fit_cache(model, mesh, RULES, CHAT, room)
  assert found == dataclasses.replace(CHAT, cache_gib=found.cache_gib)
  engine = build_engine(model, mesh, RULES, found)
  cache = layout.cache_bytes(engine)
  held = layout.weight_bytes(engine) + copies * cache
  page = copies * cache / engine.num_pages
  assert layout.MAX_HELD * room - page < held <= layout.MAX_HELD * room
  # A second call accepts a cache of the largest allowed size.
  assert sizes.fit_cache(model, mesh, RULES, found, room) == found


@pytest.mark.parametrize("layers, copied", [("unrolled", 1.0), ("scan", 0.0)])
def test_a_cache_leaves_room_for_what_prefill_copies_on_tpus(
  mesh, monkeypatch, layers, copied
):
  monkeypatch.setattr(mesh_lib, "platform", lambda mesh: "tpu")
  c = dataclasses.replace(CHAT, layers=layers)
  engine = build_engine(MODEL, mesh, RULES, c)
  weights = layout.weight_bytes(engine)
  stacked = layout.stacked_bytes(engine)
  # All but the embedding, which is also the output head.
  config = MODEL.config
  table = 4 * config.hidden_size * (config.vocab_size + 1)
  assert stacked == copied * (weights - table)
  room = int(4.5 * weights)
  found = sizes.fit_cache(MODEL, mesh, RULES, c, room)
  cache = layout.cache_bytes(build_engine(MODEL, mesh, RULES, found))
  page = cache / build_engine(MODEL, mesh, RULES, found).num_pages
  limit = min(layout.MAX_HELD * room, room - stacked)
  assert limit - page < weights + cache <= limit


def test_calls_of_decode_stay_within_a_page_of_a_small_cache(mesh):
  c = dataclasses.replace(CHAT, decode_chunk=512)
  found = sizes.fit_cache(MODEL, mesh, RULES, c, 12 * GIB)
  assert found.decode_chunk == c.page_size and found.cache_gib > 0


@pytest.mark.parametrize(
  "changes, may_choose, message",
  [
    (
      {"max_tokens": 200_000},
      True,
      "sampling one sequence of 204096 tokens needs 9.44 GiB on each device, "
      "but 3 GiB are available: lower config.rollout.max_tokens=200000 or the "
      "last of config.rollout.prompt_buckets=(256, 512, 1024, 2048, 4096), or "
      "take a smaller model",
    ),
    (
      {"cache_gib": 20.0},
      True,
      "sampling needs 20.5 GiB on each device, but 3 GiB are available: lower "
      "config.rollout.cache_gib=20",
    ),
    (
      {},
      False,
      "sampling needs 34.4 GiB on each device, but 3 GiB are available: "
      "the folder's run started with these sizes; expected as much memory as "
      "then, more devices with config.mesh.fsdp, or another --workdir",
    ),
  ],
)
def test_what_cannot_fit_is_one_line_with_the_key_to_lower(
  mesh, changes, may_choose, message
):
  c = dataclasses.replace(CHAT, **changes)
  with pytest.raises(MemoryError) as caught:
    sizes.fit_cache(MODEL, mesh, RULES, c, 3 * GIB, may_choose)
  assert str(caught.value) == message


def test_a_kept_copy_of_the_start_counts_in_its_own_dtype(mesh):
  state = abstract_state(MODEL, optax.sgd(0.1), mesh, RULES)
  held = [
    sizes.check_update(
      LearnerSettings(), MODEL.config, state, mesh, None, reference_dtype=dtype
    )
    for dtype in (None, "bfloat16", "float32")
  ]
  params = layout.shard_bytes(state.params)
  assert [one - held[0] for one in held] == [0, params // 2, params]


def test_a_model_that_is_too_large_is_refused_before_it_is_loaded(
  mesh, monkeypatch
):
  monkeypatch.setattr(memory, "host_bytes", lambda *_: 8 << 20)
  c = settings.read(EvaluateSettings, evaluate.get_config())
  with pytest.raises(MemoryError, match="loading the weights needs 0.00[0-9]+"):
    loading.load_policy(c, "embedded:azr-tiny")


@pytest.mark.parametrize(
  "changes, advice",
  [
    ({}, "take a smaller model, or more devices with config.mesh.fsdp"),
    (
      {"learner.chunk_tokens": 10**7, "learner.row_length": 10**6},
      "lower config.learner.chunk_tokens=10000000",
    ),
  ],
)
def test_an_update_that_cannot_fit_is_refused_before_it_is_compiled(
  mesh, monkeypatch, changes, advice
):
  """Parameters and two moments are 20 MB, gradients 7 MB."""
  mebibytes = 22 if not changes else 64
  monkeypatch.setattr(memory, "host_bytes", lambda *_: 8 * mebibytes << 20)
  config = orz.get_config("tiny")
  config.learner.estimator = "grpo"
  config.update_from_flattened_dict(changes)
  with pytest.raises(MemoryError, match="an update needs .* GiB on") as caught:
    build.build(settings.read_train(config))
  assert str(caught.value).endswith(f"are available: {advice}")
  # A resumed run keeps its sizes.
  with pytest.raises(MemoryError, match="config.mesh.fsdp, or another --workd"):
    build.build(settings.read_train(config), may_choose_sizes=False)


@pytest.mark.parametrize(
  "file, variant",
  [
    (file, variant)
    for file in (azr, countdown, orz, code_interpreter, custom, environment)
    for variant in file.VARIANTS
  ],
)
def test_every_variant_trains_with_the_slots_and_rows_that_it_names(
  file, variant
):
  checked = settings.read_train(file.get_config(variant))
  assert sizes.for_step(checked) == checked.shared


def test_a_step_of_two_responses_has_two_slots_and_two_rows():
  config = custom.get_config()
  config.update_from_flattened_dict(
    {"custom.prompts": 1, "custom.group_size": 2}
  )
  found = sizes.for_step(settings.read_train(config))
  assert (found.rollout.slots, found.learner.micro_rows) == (2, 2)
  # Evaluations have other response counts, and steps ahead need slots.
  for key in ("evaluation.every", "rollout.max_staleness"):
    other = config.copy_and_resolve_references()
    other.custom.eval_fraction = 0.1
    other.update_from_flattened_dict({key: 1})
    found = sizes.for_step(settings.read_train(other))
    assert (found.rollout.slots, found.learner.micro_rows) == (64, 2)


def test_a_micro_batch_has_no_more_rows_than_a_minibatch_has_responses():
  config = custom.get_config()
  config.update_from_flattened_dict(
    {
      "custom.prompts": 3,
      "custom.group_size": 2,
      "learner.minibatches": 4,
      "learner.micro_rows": 8,
    }
  )
  assert sizes.for_step(settings.read_train(config)).learner.micro_rows == 2


def bounds(gib, **changes):
  fields: dict[str, Any] = {
    "config": presets.PRESETS["smollm2-135m"],
    "dtype": "float32",
    "remat": "none",
    "critic": False,
    "available": int(gib * GIB),
    "devices": 1,
    "platform": "cpu",
  }
  return sizes.Memory(**fields | changes)


def rows_of(fitted):
  return fitted["learner.micro_rows"], fitted["learner.max_micro_batches"]


@pytest.mark.parametrize(
  "responses, gib, rows",
  [
    (2, 20, (2, 1)),  # 56 rows would fit, but there are only two.
    (64, 20, (32, 2)),  # 56 rows fit, but two halves need no padding.
    (64, 4, (4, 16)),
    (64, 1, (1, 64)),  # The state does not fit, which another check reports.
    (64, 0, (1, 64)),
    (64, None, (32, 2)),  # The free memory is unknown.
  ],
)
def test_micro_batches_hold_a_row_for_each_response_within_memory(
  responses, gib, rows
):
  limit = None if gib is None else bounds(gib)
  fitted = sizes.fitted(8, 60, responses, limit)
  assert fitted["learner.row_length"] == 72
  assert rows_of(fitted) == rows


@pytest.mark.parametrize(
  "minibatches, rows",
  [(1, (32, 2)), (2, (32, 2)), (4, (16, 4)), (5, (13, 5)), (64, (1, 64))],
)
def test_each_minibatch_has_micro_batches_of_its_own(minibatches, rows):
  fitted = sizes.fitted(8, 60, 64, bounds(20), minibatches=minibatches)
  assert rows_of(fitted) == rows


def test_a_critic_s_optimizer_steps_do_not_depend_on_memory():
  fitted = sizes.fitted(8, 60, 64, bounds(4, critic=True))
  assert rows_of(fitted) == (32, 2)


@pytest.mark.parametrize(
  "responses, gib, rows",
  [
    (32, 20, (8, 4)),  # A row of 9,024 tokens on each device.
    (2, 20, (8, 1)),
    (33, 20, (8, 5)),
  ],
)
def test_micro_batches_have_as_many_rows_on_each_device(responses, gib, rows):
  memory_of_8 = bounds(gib, devices=8)
  fitted = sizes.fitted(8000, 900, responses, memory_of_8, devices=8)
  assert fitted["learner.row_length"] == 9024
  assert rows_of(fitted) == rows
  # Short rows share a device.
  short = sizes.fitted(8, 60, 256, None, devices=8)
  assert rows_of(short) == (256, 1)


def test_chunks_of_logits_are_bounded_by_memory():
  """A tenth of memory, for four float32 copies of 262,144 logits per token."""
  wide = dataclasses.replace(
    presets.PRESETS["smollm2-135m"], vocab_size=262_144
  )
  of_8, of_64 = (
    sizes.fitted(256, 256, 64, bounds(gib, config=wide))["learner.chunk_tokens"]
    for gib in (8, 64)
  )
  assert (of_8, of_64) == (204, 1024)


def test_estimated_rows_follow_what_the_compiler_reserves():
  """For rows of 384 tokens: 3.33 GiB for two, 5.25 for four (jax 0.10.2).

  With recomputation, one layer of four rows remains: 1.51 GiB. Parameters and
  moments take another 1.5 GiB. Gradients are included in the numbers.
  """
  for gib, remat, rows in ((5.25, "none", 4), (3.33, "none", 2)):
    whole = (gib + 1.5) / (layout.MAX_HELD - 0.1)
    found = bounds(whole, remat=remat).device_rows(384)
    assert rows <= found <= rows + 2
  assert bounds(8, remat="full").device_rows(384) > 40


def of_a_run(monkeypatch, workdir, gib, ends=True):
  """The settings of a run when it enters its loop on a host of `gib` GiB."""
  monkeypatch.setattr(memory, "host_bytes", lambda *_: int(8 * gib * GIB))
  entered = []

  def train(experiment, run, *_):
    entered.append(experiment.settings.shared)
    if ends:
      (run.folder / "metrics.jsonl").write_text("{}\n")

  monkeypatch.setattr(loop, "train", train)
  config = orz.get_config("tiny")
  config.learner.estimator = "grpo"
  start.train(settings.read_train(config), config, str(workdir))
  return entered[0]


def test_a_run_keeps_the_cache_that_it_began_with(
  tmp_path, on_one_device, monkeypatch, capsys
):
  first = of_a_run(monkeypatch, tmp_path, 0.1, ends=False)
  assert 0 < first.rollout.cache_gib < 0.1
  assert "memory has room for" in capsys.readouterr().err
  # Nothing was trained, so memory decides again.
  began = of_a_run(monkeypatch, tmp_path, 0.08).rollout
  assert began.cache_gib < first.rollout.cache_gib
  kept = json.loads((tmp_path / "config.json").read_text())
  assert kept["rollout"]["cache_gib"] == began.cache_gib
  assert of_a_run(monkeypatch, tmp_path, 64.0).rollout == began
  assert json.loads((tmp_path / "config.json").read_text()) == kept
  with pytest.raises(MemoryError, match="run started with these sizes"):
    of_a_run(monkeypatch, tmp_path, 0.04)


def test_a_run_that_began_with_a_whole_cache_keeps_it(
  tmp_path, on_one_device, monkeypatch
):
  assert not of_a_run(monkeypatch, tmp_path, 64.0).rollout.cache_gib
  with pytest.raises(MemoryError, match="run started with these sizes"):
    of_a_run(monkeypatch, tmp_path, 0.08)


def test_a_call_on_few_sequences_computes_few_rows(on_one_device):
  model = api.load("embedded:orz-tiny", prompt_tokens=16, max_tokens=8)
  whole = model._experiment.batching.pack([], [], step=0)
  assert whole.tokens.shape == (1, 64, 24)
  for filled, rows in ((0, 1), (1, 1), (3, 4), (32, 32), (33, 64)):
    segments = np.zeros(whole.segment_ids.shape, np.int32)
    segments[0, :filled] = 1
    batch = model._fitting(whole.replace(segment_ids=segments))
    assert batch.tokens.shape == (1, rows, 24)
    assert np.count_nonzero(batch.segment_ids[..., 0]) == filled


class Asked(Exception):
  """Raised to end a command when it loads its model."""


@pytest.mark.parametrize(
  "variant, benchmark, data, known, longest",
  [
    ("greedy", "programs_heldout", "", True, 100),
    ("questions_tiny", "questions", "questions=gym:gcd", False, 144),
  ],
)
def test_an_evaluation_asks_for_its_responses_and_longest_prompt(
  tmp_path, monkeypatch, variant, benchmark, data, known, longest
):
  """Agents write their own prompts."""
  tokenizer = load.from_folder(load.EMBEDDED["code-tiny"]).tokenizer

  def ask(settings, spec, step, workload):
    raise Asked(workload(tokenizer))

  monkeypatch.setattr(loading, "load_policy", ask)
  config = evaluate.get_config(variant)
  config.evaluate.samples = 4
  config.rollout.temperature = 1.0
  config.evaluate.max_tokens = f"{benchmark}=100"
  folder = str(tmp_path)
  with pytest.raises(Asked) as caught:
    scoring.evaluate(config, "embedded:code-tiny", benchmark, folder, data, 2)
  (workload,) = caught.value.args
  assert workload.responses in (2 * 4, 3 * 2 * 4)  # One or three subsets.
  assert (workload.longest_prompt > 0) == known
  assert workload.max_tokens == longest
