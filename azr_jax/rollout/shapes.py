"""The sizes that the sampler's programs are compiled for."""

import dataclasses

# Each slot count is this many times smaller than the one before it.
_COMPACT_FACTOR = 4
# The fewest slots per device after the first count. With one, a TPU multiplies
# on its vector units: a token takes 1.7 times as long as with two.
_LEAST_SLOTS = {"tpu": 2}


@dataclasses.dataclass(frozen=True)
class EngineShapes:
  """The sizes of the arrays that device calls take.

  Attributes:
    devices: number of devices that slots are split over, in equal parts.
    slot_counts: slot counts to decode with, descending; each is a multiple of
      `devices`. The first is B.
    prompt_buckets: lengths of prompts that are prefilled together, ascending.
      No prompt is longer than the last.
    prefill_chunks: row lengths in tokens that a prefill call may have,
      ascending.
    prefill_tokens: tokens per prefill call, from which `prefill_rows` follows.
    decode_chunk: N, the maximum number of tokens per slot and decode call.
    page_size: C, tokens per page.
    longest: maximum number of cached tokens per sequence: all but the last.
  """

  devices: int
  slot_counts: tuple[int, ...]
  prompt_buckets: tuple[int, ...]
  prefill_chunks: tuple[int, ...]
  prefill_tokens: int
  decode_chunk: int
  page_size: int
  longest: int

  def pages_for(self, tokens: int) -> int:
    """Returns the number of pages that `tokens` tokens need."""
    return -(-tokens // self.page_size)

  @property
  def max_pages_per_row(self) -> int:
    """M, the number of pages of the longest sequence."""
    return self.pages_for(self.longest)

  def prefill_chunk(self, tokens: int) -> int:
    """Returns the smallest chunk that holds the tokens, or the largest one."""
    fitting = (chunk for chunk in self.prefill_chunks if chunk >= tokens)
    return next(fitting, self.prefill_chunks[-1])

  def prefill_rows(self, chunk: int) -> int:
    """Returns the rows of a prefill call, equally many on each device."""
    rows = max(1, self.prefill_tokens // chunk)
    return rows + -rows % self.devices

  @property
  def num_slot_pages(self) -> int:
    """Pages per device that let every slot hold the longest sequence."""
    # Prefilled prompts that wait for slots also hold pages.
    prefilled = max(
      self.prefill_rows(bucket) * self.pages_for(bucket)
      for bucket in self.prompt_buckets
    )
    slots = self.slot_counts[0] // self.devices
    return slots * self.max_pages_per_row + prefilled // self.devices


def slot_counts(slots: int, devices: int, platform: str) -> tuple[int, ...]:
  """Returns the slot counts to compile the decode loop for, descending.

  All are multiples of `devices`, so that every device has equally many slots.

  Args:
    slots: the declared number of slots, which the first count rounds up.
    devices: number of devices that slots are split over.
    platform: cpu, gpu or tpu.
  """
  least = _LEAST_SLOTS.get(platform, 1)
  counts = [slots + -slots % devices]
  while True:
    fewer = counts[-1] // _COMPACT_FACTOR
    fewer = max(least * devices, fewer + -fewer % devices)
    if fewer >= counts[-1]:
      return tuple(counts)
    counts.append(fewer)
