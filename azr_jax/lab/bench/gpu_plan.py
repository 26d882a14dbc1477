"""The cases of `benchmark gpu`: commands of `azr_jax.benchmark`, in order."""

import dataclasses

from azr_jax.lab.bench import decoding
from azr_jax.models import presets
from azr_jax.models.operations import training_flops
from azr_jax.rollout.settings import KERNEL, XLA, SamplerSettings

OURS, TORCH = _SIDES = "azr_jax", "torch"
# Keys of `peak_rates` that a case may be limited by.
FLOPS, BANDWIDTH = "flops", "bandwidth"
_DTYPE = "bfloat16"
_CACHED_TOKENS, _NEW_TOKENS = 512, 128
_CHUNK_TOKENS = 2048
_REPEATS = 5
# A program of 28 separate layers takes over a minute to compile.
_LIMIT_S = 300.0
_TINY = "azr-tiny"


@dataclasses.dataclass(frozen=True)
class Case:
  """A command to run in its own process.

  Attributes:
    name: what is measured; the same for both sides.
    side: `OURS` or `TORCH`.
    words: the command, after `python -m azr_jax.benchmark`.
    seconds_key: key of its output with the seconds to compare; "" if none.
    least: minimum FLOPs of a step, or bytes of a token.
    rate: which of the peak rates limits it.
    limit_s: seconds after which the command is killed.
  """

  name: str
  side: str
  words: tuple[str, ...]
  seconds_key: str = ""
  least: float = 0.0
  rate: str = ""
  limit_s: float = _LIMIT_S

  @property
  def key(self) -> str:
    """The case's name in the file of results."""
    return f"{self.name}, {self.side}"


@dataclasses.dataclass(frozen=True)
class Shape:
  """The model and the batch of an update, or the model of a decoder.

  Attributes:
    preset: key of `presets.PRESETS`.
    sequences: sequences of an update.
    length: tokens per sequence.
    num_layers: layers to keep; 0 keeps all.
  """

  preset: str
  sequences: int = 16
  length: int = 1024
  num_layers: int = 0


SHAPES = {
  "135M": Shape("smollm2-135m", sequences=64, length=256),
  "0.5B": Shape("qwen2.5-0.5b"),
  "1.5B": Shape("qwen2.5-1.5b"),
  # The float32 state of all 28 layers, 122 GB, fits no single GPU of 80 GB.
  "7B, 8 layers": Shape("qwen2.5-7b", sequences=8, num_layers=8),
  "7B": Shape("qwen2.5-7b"),
}
# Ablation of an update -> the flag that it adds.
CHANGES = {
  "scanned layers": "--train_layers=scan",
  "unrolled layers": "--train_layers=unrolled",
  "remat none": "--remat=none",
  "remat dots": "--remat=dots",
  "remat attention": "--remat=attention",
  "remat full": "--remat=full",
}


def make(tiny: bool = False) -> list[Case]:
  """Returns the cases, the most important ones first.

  Args:
    tiny: replaces each shape by one that takes seconds on a CPU.
  """

  def update(*names: str) -> list[Case]:
    return [_update(name, side, tiny) for name in names for side in _SIDES]

  def decode(name: str, *slots: int) -> list[Case]:
    return [
      _decode(name, count, side, tiny) for count in slots for side in _SIDES
    ]

  kernels = () if not tiny else _tiny_kernels()
  return [
    Case("peak", OURS, ("peak",)),
    *update("135M"),
    *decode("1.5B", 64),
    *update("1.5B", "7B, 8 layers"),
    *decode("7B", 64),
    Case("kernels", OURS, ("kernels", *kernels)),
    *decode("1.5B", 8, 256),
    *update("0.5B"),
    *decode("0.5B", 64, 8, 256),
    *decode("7B", 8, 256),
    *[
      _decode(name, slots, OURS, tiny, KERNEL)
      for name, slots in (("1.5B", 64), ("1.5B", 8), ("7B", 64))
    ],
    *[
      _update(name, OURS, tiny, change)
      for name in ("135M", "1.5B")
      for change in CHANGES
    ],
  ]


def _update(name: str, side: str, tiny: bool, change: str = "") -> Case:
  """Returns one side's update: the default, or an ablation of `CHANGES`."""
  shape = SHAPES[name]
  if tiny:
    shape = Shape(_TINY, sequences=2, length=16)
  config = presets.PRESETS[shape.preset]
  if shape.num_layers:
    config = dataclasses.replace(config, num_layers=shape.num_layers)
  chunk_tokens = 16 if tiny else _CHUNK_TOKENS
  words = (
    f"--model=random:{shape.preset}",
    f"--num_layers={shape.num_layers}",
    f"--sequences={shape.sequences}",
    f"--length={shape.length}",
    f"--chunk_tokens={chunk_tokens}",
    f"--repeats={1 if tiny else _REPEATS}",
  )
  if side == TORCH:
    words = ("torch", "update", *words)
  else:
    rows = f"--micro_rows={shape.sequences}"
    words = ("update", f"--dtype={_DTYPE}", rows, *words)
  return Case(
    f"update {name}" + (f", {change}" if change else ""),
    side,
    words + ((CHANGES[change],) if change else ()),
    "step_s",
    training_flops(config, [shape.length] * shape.sequences),
    FLOPS,
  )


def _decode(
  name: str, slots: int, side: str, tiny: bool, projection: str = XLA
) -> Case:
  """Returns one side's decoding of some slots."""
  preset = SHAPES[name].preset
  cached, new, count = _CACHED_TOKENS, _NEW_TOKENS, slots
  if tiny:
    preset, cached, new, count = _TINY, 16, 8, 4
  words = (
    f"--model=random:{preset}",
    f"--slots={count}",
    f"--prompt_tokens={cached}",
    f"--decode_chunk={new}",
    f"--repeats={1 if tiny else _REPEATS}",
  )
  if side == TORCH:
    words = ("torch", "decode", *words)
  else:
    page = ("--page_size=8",) if tiny else ()
    how = f"--dtype={_DTYPE}", f"--projection={projection}"
    words = ("decode", *how, *page, *words)
  read = decoding.min_bytes(
    presets.PRESETS[preset],
    SamplerSettings().dtypes(_DTYPE),
    count,
    cached,
    new,
  )
  return Case(
    f"decode {name}, {slots} slots"
    + (", projection kernel" if projection == KERNEL else ""),
    side,
    words,
    "token_s",
    read / new,
    BANDWIDTH,
  )


def _tiny_kernels() -> tuple[str, ...]:
  """Returns flags of `benchmark kernels` for a run of seconds."""
  return (
    f"--model=random:{_TINY}",
    "--rows=1",
    "--row_length=32",
    "--sequences=2",
    "--slots=4",
    "--page_size=16",
    "--cached=equal:24",
    "--tokens=1",
    "--repeats=1",
  )
