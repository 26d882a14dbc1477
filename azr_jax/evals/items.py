"""Selects a benchmark's items and writes their prompts."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from azr_jax.config import user_files
from azr_jax.evals import prompt_formats, told
from azr_jax.evals.benchmark import Benchmark, Item
from azr_jax.models.tokenizers import Message, Tokenizer
from azr_jax.run import console
from azr_jax.tasks import records as records_lib
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.templates import PromptFormat

# Starts the hint that is appended to errors about public sources.
PASS_DATA = "; or pass the data with"


@dataclasses.dataclass(frozen=True)
class ItemOptions:
  """Which items to run, and how.

  Attributes:
    data: the path or name of the data; "" reads the benchmark's public source.
    limit: the maximum number of items (per subset, if the benchmark has
      `limit_per_subset`); 0 uses the benchmark's default.
    prompt_format: one of `prompt_formats.PROMPT_FORMATS`, a format of the
      benchmark's own `prompt`, or a user's prompts.
    samples: the number of responses per item.
    template_arguments: extra arguments of the chat template, by name.
    prefill: returns how the responses to an item begin. The prompt ends with
      it, and graders and records have it at the start of the response.
  """

  data: str
  limit: int
  prompt_format: PromptFormat
  samples: int
  template_arguments: Mapping[str, Any] = dataclasses.field(
    default_factory=dict
  )
  prefill: told.Prefill = told.nothing


class _Asked(Chat):
  """Remembers whether a prompt was written as a chat."""

  is_asked = False

  def prompt(
    self,
    messages: str | Sequence[Message],
    tools: Sequence[Mapping[str, Any]] = (),
  ) -> str:
    """Returns the text that the model continues with its reply."""
    self.is_asked = True
    return super().prompt(messages, tools)


def items_of(
  benchmark: Benchmark,
  options: ItemOptions,
  say: Callable[[str], None] = console.print_status,
) -> list[Item]:
  """Reads a benchmark's data and returns its items, up to the limit.

  Args:
    options: which items to return.
    say: prints a status line.

  Raises:
    ValueError: the data cannot be read.
  """
  items = _read_items(benchmark, options.data, say)
  limit = options.limit or benchmark.default_limit
  if not limit:
    return items
  if not benchmark.limit_per_subset:
    return items[:limit]
  subsets = dict.fromkeys(item.subset for item in items)
  return [
    item
    for subset in subsets
    for item in [i for i in items if i.subset == subset][:limit]
  ]


def _read_records_of(
  benchmark: Benchmark, spec: str, is_given: bool
) -> Iterable[Any]:
  """Reads records. If the public source fails, the error suggests --data."""
  try:
    return records_lib.read(spec)
  except ValueError as error:
    if is_given:
      raise
    raise ValueError(
      f"{str(error).splitlines()[0]}{PASS_DATA} --data={benchmark.name}=PATH"
    ) from error


def _read_items(
  benchmark: Benchmark, data: str, say: Callable[[str], None]
) -> list[Item]:
  """Reads all items from `data`, or from the benchmark's public source."""
  spec = data or benchmark.source
  if benchmark.source and not data:
    say(f"{benchmark.name}: reading {spec}")
  if benchmark.opens_data:
    with user_files.reading(spec or benchmark.name, "data of a benchmark"):
      return benchmark.read(data)
  if not spec:
    raise ValueError(
      f"{benchmark.name} has no public source: expected a path to its data"
    )
  with user_files.reading(spec, f"the layout of {benchmark.name}"):
    return benchmark.read(_read_records_of(benchmark, spec, bool(data)))


def longest_prompt(
  benchmark: Benchmark,
  options: ItemOptions,
  tokenizer: Tokenizer,
  say: Callable[[str], None] = console.print_status,
) -> int:
  """Returns the number of tokens in a benchmark's longest prompt.

  Args:
    benchmark: the benchmark with its items.
    options: which items, and the format of their prompts.
    tokenizer: the model's tokenizer.
    say: prints a warning about the chat template.

  Raises:
    ValueError: the benchmark does not support the prompt format, or the
      prefill of an item fails.
  """
  longest, first = 0, ""
  for item in items_of(benchmark, options):
    try:
      text = prompt_text(benchmark, item, options, tokenizer)
    except ValueError as error:
      raise ValueError(f"{benchmark.name}: {error}") from error
    begun = options.prefill(item)
    first = first or begun
    longest = max(longest, len(prompt_ids(text, begun, tokenizer)))
  if options.prompt_format == "chat" and tokenizer.has_chat_template:
    Chat(tokenizer, options.template_arguments, first).check(say)
  return longest


def prompt_ids(
  text: str, prefill: str, tokenizer: Tokenizer
) -> tuple[int, ...]:
  """Returns the token ids of a prompt that ends with a prefill.

  As in a sampled response, no token of the prefill begins in the text before.
  """
  if not prefill or not text.endswith(prefill):
    return tuple(tokenizer.encode_prompt(text))
  before = tokenizer.encode_prompt(text.removesuffix(prefill))
  return (*before, *tokenizer.encode(prefill))


def prompt_text(
  benchmark: Benchmark, item: Item, options: ItemOptions, tokenizer: Tokenizer
) -> str:
  """Returns the prompt of an item, which ends with the item's prefill."""
  begun = options.prefill(item)
  chat = _Asked(tokenizer, options.template_arguments, begun)
  if benchmark.prompt is not None:
    text = benchmark.prompt(item, options.prompt_format, chat)
  else:
    text = prompt_formats.prompt(
      item.question,
      benchmark.answer_format,
      options.prompt_format,
      chat,
      benchmark.name,
    )
  # A chat template places the prefill itself.
  return text if chat.is_asked else f"{text}{begun}"
