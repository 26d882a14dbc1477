"""Tests the costs of small programs, handwritten in the compilers' format."""

import pytest

from azr_jax.lab.compile import (
  collectives,
  cost,
  hlo,
  large,
  parts,
  program_report,
)
from azr_jax.parallel.chips import Chip

CYCLES = 'backend_config={"window_config":{"estimated_cycles":"%d"}}'


def meta(path):
  return f'metadata={{op_name="{path}"}}'


def fusion(name, cycles, path="", shape="f32[8]", reads="%x", extra=""):
  """Returns the line of a fusion with its estimate."""
  return (
    f"  %{name} = {shape}{{0:T(8)}} fusion({reads}), kind=kLoop, "
    f"calls=%fused, {meta(path)}, {CYCLES % cycles}{extra}"
  )


def condition(name, bound, index=0, more=""):
  """Returns a condition: the loop's index is less than a bound."""
  return f"""
%{name} (p: (s32[], f32[8])) -> pred[] {{
  %{name}.bound = s32[]{{:T(128)}} constant({bound})
  %{name}.p = (s32[], f32[8]) parameter(0)
  %{name}.i = s32[] get-tuple-element(%{name}.p), index={index}
  ROOT %{name}.lt = pred[] compare(%{name}.i, %{name}.bound), direction=LT{more}
}}
"""


def body(name, lines, step=1):
  """Returns a loop's body: some operations, and the index plus a step."""
  return f"""
%{name} (p: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %{name}.step = s32[] constant({step})
  %{name}.p = (s32[], f32[8]) parameter(0)
  %{name}.i = s32[] get-tuple-element(%{name}.p), index=0
  %{name}.x = f32[8] get-tuple-element(%{name}.p), index=1
{lines}
  %{name}.next = s32[] add(%{name}.i, %{name}.step)
  ROOT %{name}.out = (s32[], f32[8]) tuple(%{name}.next, %{name}.x)
}}
"""


def loop(name, of, under, path):
  return (
    f"  %{name} = (s32[], f32[8]) while(%start), condition=%{under}, "
    f"body=%{of}, {meta(path)}"
  )


def program(entry, *computations):
  text = "HloModule jit_f, is_scheduled=true\n" + "".join(computations)
  return text + f"\nENTRY %main (x: f32[8]) -> f32[8] {{\n{entry}\n}}\n"


def cost_of(text):
  return cost.cost(hlo.parse(text))


NEST = program(
  fusion("first", 100, "jit(f)/mlp/up/dot_general")
  + "\n"
  + loop("layers", "layer", "layer_cond", "jit(f)/while"),
  body(
    "layer",
    fusion("a", 10, "jit(f)/while/body/layers/mlp/gate/dot_general")
    + "\n"
    + loop("window", "window_body", "window_cond", "jit(f)/dot_general"),
  ),
  condition("layer_cond", 28),
  body("window_body", fusion("b", 7, "jit(f)/attention/q/dot"), step=2),
  condition("window_cond", 16),
)


def test_loops_of_known_length_are_multiplied_out():
  """28 layers, each with a windowed product of 16 shards, two at a time."""
  found = cost_of(NEST)
  assert found.loops == []
  assert found.cycles == {
    parts.MLP: 100 + 28 * 10,
    parts.PROJECTIONS: 28 * 8 * 7,
  }
  assert found.launches == 1 + 28 * (1 + 8) + 28 * 8 + 28 * (1 + 8 + 1)


DECODE = program(
  fusion("before", 1000, "jit(decode)/cache_write/scatter")
  + "\n"
  + loop("tokens", "token", "token_cond", "jit(decode)/while"),
  body(
    "token",
    fusion("head", 50, "jit(decode)/while/body/logits/dot_general")
    + "\n"
    + loop("layers", "layer", "layer_cond", "jit(decode)/Transformer/while"),
  ),
  condition("token_cond", 128)
  .replace(
    "  ROOT %token_cond.lt",
    "  %live = s32[] get-tuple-element(%token_cond.p), index=1\n"
    "  %gt = pred[] compare(%live, %token_cond.i), direction=GT\n  %lt",
  )
  .replace(
    "direction=LT\n}", "direction=LT\n  ROOT %both = pred[] and(%lt, %gt)\n}"
  ),
  body(
    "layer",
    fusion("up", 20, "jit(decode)/layers/mlp/up/dot_general")
    + "\n"
    + loop(
      "chunks", "chunk", "chunk_cond", "jit(decode)/layers/attention/while"
    ),
  ),
  condition("layer_cond", 2),
  body("chunk", fusion("keys", 3, "jit(decode)/layers/attention/attend/dot")),
  condition("chunk_cond", 9).replace(
    "%chunk_cond.bound = s32[]{:T(128)} constant(9)",
    "%chunk_cond.bound = s32[] get-tuple-element(%chunk_cond.p), index=1",
  ),
)


def test_loops_that_depend_on_data_stand_apart():
  found = cost_of(DECODE)
  assert found.loop_names() == [cost.TOKEN, cost.PAGE]
  assert found.loops[0].max_trip_count == 128
  assert found.total_cycles == 1000
  token = found.iteration(cost.TOKEN)
  assert token.total_cycles == 50 + 2 * 20
  assert token.iteration(cost.PAGE).cycles == {parts.ATTENTION: 2 * 3}
  whole = found.at({cost.TOKEN: 100, cost.PAGE: 5})
  assert whole.total_cycles == 1000 + 100 * (50 + 2 * (20 + 5 * 3))


@pytest.mark.parametrize(
  "path, name",
  [
    ("jit(decode)/while", cost.TOKEN),
    ("jit(decode)/while/body/layers/attention/while", cost.PAGE),
    ("jit(estimate)/while", cost.MICRO_BATCH),
    ("jit(critic_update)/while", cost.OPTIMIZER_STEP),
    ("jit(critic_update)/while/body/while", cost.MICRO_BATCH),
    ("jit(f)/while", "iteration"),
  ],
)
def test_loops_are_named_after_what_an_iteration_is(path, name):
  assert cost.loop_name(path) == name


def test_the_hottest_branch_counts():
  branches = "".join(
    f"\n%{name} (x: f32[8]) -> f32[8] {{\n"
    + fusion(f"in_{name}", cycles, "jit(f)/mlp/up/dot")
    + "\n}\n"
    for name, cycles in (("cold", 5), ("hot", 70))
  )
  text = program(
    "  %c = f32[8] conditional(%i, %x, %x), branch_computations={%cold, %hot}",
    branches,
  )
  assert cost_of(text).total_cycles == 70


@pytest.mark.parametrize(
  "path, part",
  [
    ("jit(update)/while/body/jvp(Transformer)/layers/mlp/up/dot", parts.MLP),
    ("jit(f)/layers/attention/o/dot_general", parts.PROJECTIONS),
    ("jit(f)/attention/attention._project/q/shard_map/dot", parts.PROJECTIONS),
    ("jit(f)/layers/attention/q_norm/mul", parts.NORMS),
    ("jit(f)/layers/attention/rope/cos", parts.NORMS),
    ("jit(f)/transpose(jvp(layers))/attention_norm/mul", parts.NORMS),
    ("jit(f)/layers/attention/attend/shard_map/splash", parts.ATTENTION),
    ("jit(f)/layers/attention/attend/cache_write/dus", parts.ATTENTION),
    ("jit(f)/cache_write/scatter", parts.CACHE),
    ("jit(f)/while/body/jvp(logits)/while/body/dot", parts.LOGITS),
    ("jit(f)/while/body/token_sampling/reduce", parts.SAMPLING),
    ("jit(f)/Transformer/gather", parts.EMBEDDING),
    ("jit(update)/optimizer/mul", parts.OPTIMIZER),
    ("jit(f)/add", parts.OTHER),
  ],
)
def test_paths_of_names_tell_the_part(path, part):
  assert parts.part_of_path(path) == part


def test_an_operation_without_a_name_belongs_to_what_it_reads():
  text = program(
    fusion("up", 10, "jit(f)/mlp/up/dot")
    + f"\n  %copy.1 = f32[8] copy(%up), {CYCLES % 4}"
    + f"\n  %copy.2 = f32[8] copy(%nothing), {CYCLES % 9223372036854775807}"
  )
  # The last estimate is the compiler's placeholder for no estimate.
  assert cost_of(text).cycles == {parts.MLP: 14}


def test_a_fusion_belongs_to_the_product_that_it_holds():
  """A residual is added to a product, and an update also counts values."""
  inside = "".join(
    f"\n%{name} (x: f32[8]) -> f32[8] {{\n"
    f"  %{name}.1 = f32[8] {kind}(%x), {meta(path)}\n"
    f"  ROOT %{name}.2 = f32[8] add(%x), {meta('jit(f)/add')}\n}}\n"
    for name, kind, path in (
      ("product", "convolution", "jit(f)/attention/o/dot_general"),
      ("moments", "multiply", "jit(update)/optimizer/mul"),
    )
  )
  entry = "\n".join(
    f"  %{name}.f = f32[8] fusion(%x), calls=%{name}, {meta('jit(f)/add')}, "
    f"{CYCLES % 10}"
    for name in ("product", "moments")
  )
  found = cost_of(program(entry, inside)).cycles
  assert found == {parts.PROJECTIONS: 10, parts.OPTIMIZER: 10}


GROUPS = "replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add"
ASYNC = program(
  "\n".join(
    (
      "  %r = f32[1024] all-reduce(%x), " + GROUPS,
      "  %s = (f32[256], f32[1024], u32[]) all-gather-start(%x), "
      "replica_groups=[2,4]<=[8], dimensions={0}",
      fusion("up", 600, "jit(f)/mlp/up/dot"),
      "  %d = f32[1024] all-gather-done(%s)",
      "  %p = (f32[256], f32[256], u32[], u32[]) collective-permute-start(%x), "
      "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}",
      "  %q = f32[256] collective-permute-done(%p)",
      "  %t = f32[256] reduce-scatter(%x), "
      "replica_groups=mesh['a'=4,'b'=2] {'a'}, to_apply=%add",
    )
  )
)


def test_collectives_by_kind_size_and_whether_they_are_asynchronous():
  found = {one: n for (one, _), n in cost_of(ASYNC).collectives.items()}
  assert found == {
    collectives.Collective("all-reduce", 4096, 4, False): 1,
    collectives.Collective("all-gather", 4096, 4, True): 1,
    collectives.Collective("collective-permute", 1024, 4, True): 1,
    collectives.Collective("reduce-scatter", 1024, 4, False): 1,
  }
  sent = {one.kind: one.sent_bytes for one in found}
  assert sent == {
    "all-reduce": 2 * 3 / 4 * 4096,
    "all-gather": 3 / 4 * 4096,
    "collective-permute": 1024,
    "reduce-scatter": 3 * 1024,
  }


def test_only_what_runs_beside_a_collective_hides_it():
  chip = Chip(1e9, 1e9, 2e3, 1024.0, multipliers=1)  # 1,000 cycles a second.
  report = program_report.time_report(cost_of(ASYNC), chip, {})
  found = {one["kind"]: one for one in report["collectives"]}
  assert found["all-gather"]["seconds"] == 3
  # The fusion of 600 cycles hides 0.6 s of these 3 s.
  assert found["all-gather"]["exposed_seconds"] == pytest.approx(2.4)
  assert found["all-reduce"]["exposed_seconds"] == 6
  assert found["collective-permute"]["exposed_seconds"] == 1
  assert report["seconds"] == 0.6
  assert report["total_seconds"] == pytest.approx(0.6 + 2.4 + 6 + 1 + 3)


def test_a_kernel_is_apart_with_an_estimate():
  text = program(
    "  %q = bf16[4,1024,128] parameter(0)\n"
    "  %k = bf16[2,1024,128] parameter(1)\n"
    "  %splash_mha_fwd.3 = bf16[4,1024,128] custom-call(%q, %k, %k), "
    'custom_call_target="tpu_custom_call", frontend_attributes={kernel={\n'
    '"xprof":"{}"\n'
    "}}, " + meta("jit(f)/attention/attend/pallas_call") + "\n"
    '  %n.1 = f32[8] custom-call(%q), custom_call_target="tpu_custom_call", '
    'backend_config={"custom_call_config":{"cost_estimate": '
    '{"flops": 7, "transcendentals": 0, "bytes_accessed": 5}}}\n'
    '  %buffer = f32[8] custom-call(), custom_call_target="AllocateBuffer"'
  )
  found = cost_of(text)
  assert found.total_cycles == 0
  (splash, part), (own, _) = found.kernels
  assert part == parts.ATTENTION
  # Two products over the lower triangle of [1024, 1024] for four heads.
  assert splash.flops == 2 * 2 * 4 * 1024 * 1024 / 2 * 128
  assert splash.bytes == 2 * 128 * 1024 * (4 + 4 + 2 + 2)
  assert (own.name, own.flops, own.bytes) == ("n", 7, 5)


def test_a_gpus_kernels_of_live_pages_cost_what_they_read():
  target = 'custom_call_target="__gpu$xla.gpu.triton", '
  path = "jit(decode)/while/body/layers_0/attention/attend/"
  text = program(
    "  %q = bf16[64,2,16,128] parameter(0)\n"
    "  %k = bf16[28,900,2,128,512] parameter(1)\n"
    "  %v = bf16[28,900,2,512,128] parameter(2)\n"
    "  %r = bf16[28,64,2,128,128] parameter(3)\n"
    f"  %pallas_call.1 = f32[600,2,16,128] custom-call(%q, %k, %v), {target}"
    + meta(path + "decode_attention/pallas_call")
    + "\n  %pallas_call.2 = bf16[64,2,16,128] "
    + f"custom-call(%q, %r, %pallas_call.1), {target}"
    + meta(path + "decode_attention_join/pallas_call")
  )
  found = cost_of(text)
  ((join, part),) = found.kernels
  ((read, of_read),) = found.iteration("page").kernels
  assert part == of_read == parts.ATTENTION
  assert (read.name, join.name) == ("decode_attention", "decode_attention_join")
  # Keys and values of a page of each of 64 rows, and two products with them.
  assert read.bytes == 64 * 2 * (2 * 128 * 512) * 2
  assert read.flops == 64 * 2 * 2 * 16 * (2 * 128 * 512)
  # Recent tokens are those of one of 28 layers.
  queries, sums = 64 * 2 * 16 * 128 * 2, 600 * 2 * 16 * 128 * 4
  assert join.bytes == 2 * queries + sums + 64 * 2 * 128 * 128 * 2


def test_large_results_outside_of_kernels():
  in_place = ', backend_config={"aliasing_operands":{"lists":[{"a":1}]}}'
  text = program(
    "\n".join(
      (
        "  %cache = bf16[1048576] parameter(0)",
        "  %copied = bf16[1048576] copy(%cache), " + meta("jit(f)/scatter"),
        "  %written = bf16[1048576] fusion(%cache), calls=%f" + in_place,
        "  %row = bf16[1048576] dynamic-update-slice(%cache, %x, %i)",
        "  %scores = f32[2,512,512] exponential(%x)",
        "  %hidden = f32[512,96] exponential(%x)",
      )
    )
  )
  found = large.large_results(hlo.parse(text), 2 * 1048576, 512)
  assert [(one.name, one.reason, one.shape) for one in found] == [
    ("copied", "cache", "bf16[1048576]"),
    ("scores", "[S, S]", "f32[2,512,512]"),
  ]


def test_launches_of_a_gpu_program():
  """A token launches a fusion, a product, a gather and a graph.

  Free operations do not count. XLA:GPU writes the length of a loop if known.
  """
  token = """
%token (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]) parameter(0)
  %y = f32[8] get-tuple-element(%p), index=1
  %bits = f32[8] bitcast(%y)
  %w = f32[8] fusion(%bits), kind=kLoop, calls=%fused
  %g = (f32[8], s8[4]) custom-call(%w), custom_call_target="__cublas$gemm"
  %s = (f32[8], f32[32]) all-gather-start(%w), replica_groups={{0,1,2,3}}, \
backend_config={"collective_backend_config":{"is_sync":true}}
  %d = f32[32] all-gather-done(%s)
  %rs = ((f32[32]), f32[8]) async-start(%d), calls=%async
  %rd = f32[8] async-done(%rs)
  %many = f32[8] call(%w), to_apply=%command_buffer
  ROOT %out = (s32[], f32[8]) tuple(%p, %w)
}
"""
  others = """
%command_buffer (a: f32[8]) -> f32[8] {
  %one = f32[8] fusion(%a), kind=kLoop, calls=%fused
  ROOT %two = f32[8] fusion(%one), kind=kLoop, calls=%fused
}

%async (a: f32[32]) -> f32[8] {
  ROOT %inner = f32[8] reduce-scatter(%a), replica_groups={{0,1,2,3}}
}

%cond (p: (s32[], f32[8])) -> pred[] {
  ROOT %c = pred[] fusion(%p), calls=%fused
}
"""
  line = "  %w0 = (s32[], f32[8]) while(%x), condition=%cond, body=%token"
  known = ', backend_config={"known_trip_count":{"n":"3"}}'
  found = cost_of(program(line + known, token, others))
  launched = 5 + 1  # The body's, and the fusion of the condition.
  assert found.loops == [] and found.launches == 3 * launched
  unknown = cost_of(program(f"{line}, {meta('jit(decode)/w')}", token, others))
  assert unknown.iteration(cost.TOKEN).launches == launched
  moved = {
    one.kind: one.asynchronous
    for one, _ in unknown.iteration(cost.TOKEN).collectives
  }
  assert moved == {"all-gather": False, "reduce-scatter": True}


def test_fused_asynchronous_collectives_are_found():
  """Products do some steps of a gather, in the TPU compiler's format."""

  def gather(name, tail=""):
    return (
      f"  %g.{name} = bf16[3584,64] all-gather(%p), channel_id=7, "
      f"replica_groups={{{{0,1,2,3}}}}, dimensions={{0}}\n{tail}"
    )

  called = "".join(
    f"\n%{name} (p: bf16[896,64]) -> bf16[3584,64] {{\n{gather(name, tail)}}}\n"
    for name, tail in (
      (
        "begin",
        "  ROOT %b = (bf16[3584,64]) custom-call(%g.begin), "
        'custom_call_target="AsyncCollectiveStart"\n',
      ),
      ("product", "  ROOT %c = f32[8] convolution(%q, %r)\n"),
      (
        "finish",
        "  ROOT %d = bf16[3584,64] custom-call(%g.finish), "
        'custom_call_target="AsyncCollectiveDone"\n',
      ),
    )
  )
  text = program(
    "\n".join(
      (
        "  %async-collective-start = (bf16[3584,64]) fusion(%x), kind=kCustom, "
        "calls=%begin",
        "  %fusion.1 = f32[8] fusion(%x), kind=kOutput, calls=%product, "
        f"{meta('jit(f)/mlp/up/dot')}, {CYCLES % 900}",
        "  %async-collective-done = bf16[3584,64] fusion(%fusion.1), "
        "kind=kCustom, calls=%finish",
      )
    ),
    called,
  )
  found = cost_of(text)
  size = 3584 * 64 * 2.0
  ((one, _),) = found.collectives
  assert one == collectives.Collective("all-gather", size, 4, True)
  assert list(found.hidden.values()) == [900]
  assert found.cycles == {parts.MLP: 900}
