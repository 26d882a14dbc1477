"""Tests the hidden script time: both kinds of rollout sample the same."""

import jax
import pytest

from azr_jax.executor import Executor
from azr_jax.lab.bench import conversations
from azr_jax.lab.bench.commands.decoder import RULES
from azr_jax.models import attention, load, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.settings import SamplerSettings


@pytest.mark.slow
def test_conversations_are_the_same_however_long_scripts_take():
  work = conversations.ConversationWorkload(
    conversations=3,
    prompt_tokens=8,
    calls=2,
    response_tokens=6,
    output_tokens=4,
  )
  mesh = mesh_lib.make_mesh(
    {"data": 1, "fsdp": 1, "tensor": 1}, jax.devices()[:1]
  )
  source = load.resolve("embedded:code-tiny", "")
  model = transformer.Transformer(
    source.config,
    jax.numpy.float32,
    attention.make("xla", mesh, "float32", 1),
    "none",
  )
  settings = SamplerSettings(
    slots=2,
    prompt_buckets=(work.prompt_tokens,),
    max_tokens=work.max_tokens,
    prefill_tokens=32,
    decode_chunk=4,
    page_size=64,
    extend_chunk=work.output_tokens,
    stop_strings=(),
  )
  params = source.load_params(mesh, RULES)
  runner = conversations.ConversationRunner(
    source, params, model, mesh, RULES, work, settings
  )
  with Executor(workers=2, timeout_s=10.0, memory_mb=512) as executor:
    report = conversations.report(runner, executor, sleep_s=0.2, repeats=1)
  # There are three conversations of three responses and two tool outputs.
  assert 3 * (3 * 4 + 2 * 4) <= report["tokens"] <= 3 * (3 * 6 + 2 * 4)
  assert report["slept_s"] == pytest.approx(1.2)
  # Each conversation sleeps twice.
  assert report["sleeping_s"] > 0.4
  assert 0 < report["slots_decoding"] <= 1 and report["awaiting"] > 0
