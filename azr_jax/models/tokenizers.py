"""Hugging Face and sentencepiece tokenizers behind one interface."""

import copy
import datetime
import json
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import sentencepiece

from azr_jax.config import user_files
from azr_jax.models import character_tokenizer, chat_templates

_GENERATION = "generation_config.json"
# Maximum growth of a text by normalization. Published tokenizers replace a
# character by at most a few.
_MAX_GROWTH = 1000
_TOKENIZER_FILES = (
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
)
# Parameters of `apply_chat_template` that are not template variables.
_NO_VARIABLES = (
  "conversation",
  "messages",
  "tools",
  "chat_template",
  "add_generation_prompt",
  "continue_final_message",
  "tokenize",
  "sanitize_control_tokens",
  "padding",
  "truncation",
  "max_length",
  "return_tensors",
  "return_dict",
  "return_assistant_tokens_mask",
  "tokenizer_kwargs",
)

# A chat message: `role` and `content`.
Message = Mapping[str, str]


@runtime_checkable
class Tokenizer(Protocol):
  """The tokenizer interface that the rest of the code uses.

  Attributes:
    eos_ids: EOS token ids.
    pad_id: id of the padding token.
    vocab_size: one more than the largest id.
  """

  eos_ids: tuple[int, ...]
  pad_id: int
  vocab_size: int

  @property
  def has_chat_template(self) -> bool:
    """Whether `apply_chat_template` has a template to apply."""
    ...

  def encode(self, text: str) -> list[int]:
    """Returns the ids of a text, without adding special tokens."""
    ...

  def encode_prompt(self, text: str) -> list[int]:
    """Returns the ids of a whole prompt, starting with BOS if the model has it.

    Only the start of a sequence is encoded this way. Later parts, such as tool
    output, use `encode`.
    """
    ...

  def decode(self, ids: list[int], skip_special: bool = False) -> str:
    """Returns the text of ids.

    EOS, BOS and padding tokens decode to nothing. Other special tokens, such as
    `<think>` in some vocabularies, decode to their text, because rewards and
    stop strings look for it.

    Args:
      ids: token ids.
      skip_special: whether to drop every special token.
    """
    ...

  def token_id(self, piece: str) -> int | None:
    """Returns the id whose text is exactly `piece`, or None."""
    ...

  def vocabulary(self) -> dict[int, str]:
    """Returns the piece of each id, as the tokenizer's files spell it."""
    ...

  def apply_chat_template(
    self,
    messages: str | Sequence[Message],
    is_answered: bool = False,
    tools: Sequence[Mapping[str, Any]] = (),
    is_continued: bool = False,
    arguments: Mapping[str, Any] | None = None,
  ) -> str:
    """Renders messages with the model's chat template, as text.

    `tasks/chats.py` uses this to write prompts.

    Args:
      messages: a user's message, or messages with role and content.
      is_answered: whether the messages are complete. If not, the text ends
        where the assistant's next message starts.
      tools: tools that the model may call, as in OpenAI's requests. A template
        may ignore them.
      is_continued: whether the text ends inside the last message.
      arguments: template variables by name, such as `enable_thinking`.

    Raises:
      ValueError: the model has no chat template, the template rejects the
        messages, or it does not use one of the arguments.
      chat_templates.RenderingFailed: the template exceeds a limit, or its
        process ends twice.
    """
    ...

  def save(self, folder: pathlib.Path) -> None:
    """Writes the files from which `from_folder` loads the tokenizer."""
    ...


class SentencePieceTokenizer:
  """A sentencepiece model file, as used by the embedded models."""

  has_chat_template = False

  def __init__(self, path: pathlib.Path):
    """Reads the file, locally or from an object store.

    Raises:
      ValueError: the file is not a sentencepiece model.
    """
    self._model = sentencepiece.SentencePieceProcessor()
    with user_files.reading(path, "a sentencepiece model"):
      self._model.load_from_serialized_proto(path.read_bytes())
    self.eos_ids: tuple[int, ...] = (self._model.eos_id(),)
    pad = self._model.pad_id()
    # A model trained without a pad piece reports -1.
    self.pad_id: int = self.eos_ids[0] if pad < 0 else pad
    self.vocab_size: int = self._model.get_piece_size()

  @property
  def model(self) -> sentencepiece.SentencePieceProcessor:
    """The sentencepiece model."""
    return self._model

  def encode(self, text: str) -> list[int]:
    """Returns the ids of a text."""
    return self._model.encode(text)

  def encode_prompt(self, text: str) -> list[int]:
    """Returns the ids of a text; a sentencepiece file defines no BOS rule."""
    return self.encode(text)

  def decode(self, ids: list[int], skip_special: bool = False) -> str:
    """Returns the text of ids.

    Ids beyond the tokenizer's vocabulary, which a model may have, decode to
    nothing. So do control pieces, which have no text in sentencepiece.
    """
    del skip_special
    return self._model.decode([i for i in ids if i < self.vocab_size])

  def token_id(self, piece: str) -> int | None:
    """Returns the id whose text is exactly `piece`, or None."""
    ids = self.encode(piece)
    is_token = len(ids) == 1 and ids[0] != self._model.unk_id()
    return ids[0] if is_token else None

  def vocabulary(self) -> dict[int, str]:
    """Returns the piece of each id."""
    return {i: self._model.id_to_piece(i) for i in range(self.vocab_size)}

  def apply_chat_template(
    self,
    messages: str | Sequence[Message],
    is_answered: bool = False,
    tools: Sequence[Mapping[str, Any]] = (),
    is_continued: bool = False,
    arguments: Mapping[str, Any] | None = None,
  ) -> str:
    """Raises ValueError, because sentencepiece has no chat template."""
    del messages, is_answered, tools, is_continued, arguments
    raise ValueError(
      "the model has no chat template; expected another prompt format"
    )

  def save(self, folder: pathlib.Path) -> None:
    """Writes `tokenizer.model` and, if needed, a copy for `transformers`.

    Only character-level models need the copy, because `transformers` would
    misread their `tokenizer.model`.
    """
    model = self._model.serialized_model_proto()
    (folder / "tokenizer.model").write_bytes(model)
    if character_tokenizer.is_character_level(self._model):
      character_tokenizer.save(self._model, folder)
      _write_generation_config(folder, self.eos_ids, self.pad_id)


class HuggingFaceTokenizer:
  """A fast tokenizer of `transformers`, with the EOS token ids.

  The tokenizer is annotated as Any, because `transformers` is not imported here
  and the return types of its methods depend on their arguments.
  """

  def __init__(
    self,
    tokenizer: Any,
    eos_ids: Mapping[int, str] | Sequence[int],
    unknown_eos: Mapping[int, str] | None = None,
    now: Callable[[], datetime.datetime] = datetime.datetime.now,
  ):
    """Wraps a tokenizer.

    Args:
      tokenizer: a fast tokenizer of `transformers`.
      eos_ids: EOS ids, the main one first. A mapping also names the source of
        each id.
      unknown_eos: EOS ids that the files name but the vocabulary lacks, with
        their sources; reported by `end_tokens`.
      now: returns the date that chat templates see as today.
    """
    self._tokenizer = tokenizer
    self._now = now
    self.eos_ids: tuple[int, ...] = tuple(eos_ids)
    self._eos_origins = dict(eos_ids) if isinstance(eos_ids, Mapping) else {}
    self._unknown_eos = dict(unknown_eos or {})
    pad = tokenizer.pad_token_id
    self.pad_id: int = self.eos_ids[0] if pad is None else pad
    # Ids may have gaps, so the number of tokens may be smaller than this.
    self.vocab_size: int = max(tokenizer.get_vocab().values()) + 1
    self._bos_ids = _prefix_ids(tokenizer)
    ends = {*self.eos_ids, self.pad_id, tokenizer.bos_token_id}
    self._hidden_ids = frozenset(
      index
      for index, token in tokenizer.added_tokens_decoder.items()
      if token.special and index in ends
    )

  @property
  def end_tokens(self) -> str:
    """Each EOS token with its id and source, for display."""
    ends = ", ".join(
      f"{self._tokenizer.convert_ids_to_tokens(index)!r} ({index}, from "
      f"{origin})"
      for index, origin in self._eos_origins.items()
    )
    unknown = ", ".join(
      f"{index} (from {origin})" for index, origin in self._unknown_eos.items()
    )
    return (
      f"{ends}; ignored, not in the vocabulary: {unknown}" if unknown else ends
    )

  def encode(self, text: str) -> list[int]:
    """Returns the ids of a text."""
    return self._tokenizer.encode(text, add_special_tokens=False)

  def encode_prompt(self, text: str) -> list[int]:
    """Returns the ids of a whole prompt, with BOS if the tokenizer adds it.

    A text that already starts with BOS, as many chat templates write it, does
    not get a second one.
    """
    ids = self.encode(text)
    has_bos = ids[: len(self._bos_ids)] == self._bos_ids
    return ids if has_bos else self._bos_ids + ids

  def decode(self, ids: list[int], skip_special: bool = False) -> str:
    """Returns the text of ids; see `Tokenizer`."""
    return self._tokenizer.decode(
      [index for index in ids if index not in self._hidden_ids],
      skip_special_tokens=skip_special,
      clean_up_tokenization_spaces=False,
    )

  def token_id(self, piece: str) -> int | None:
    """Returns the id whose text is exactly `piece`, or None.

    Only added tokens count as exact, because ordinary tokens may merge across
    the edges of a piece. Other stop strings must be searched for in the text.
    """
    return self._tokenizer.get_added_vocab().get(piece)

  def vocabulary(self) -> dict[int, str]:
    """Returns the piece of each id."""
    vocabulary: dict[str, int] = self._tokenizer.get_vocab()
    return {index: piece for piece, index in vocabulary.items()}

  @property
  def has_chat_template(self) -> bool:
    """Whether the tokenizer's files have a chat template."""
    return bool(self._tokenizer.chat_template)

  def apply_chat_template(
    self,
    messages: str | Sequence[Message],
    is_answered: bool = False,
    tools: Sequence[Mapping[str, Any]] = (),
    is_continued: bool = False,
    arguments: Mapping[str, Any] | None = None,
  ) -> str:
    """Renders messages with the model's chat template; see `Tokenizer`."""
    if not self.has_chat_template:
      raise ValueError(
        "the model has no chat template; expected another prompt format"
      )
    if isinstance(messages, str):
      messages = [{"role": "user", "content": messages}]
    arguments = arguments or {}
    _check_arguments(arguments, str(self._tokenizer.chat_template))
    return chat_templates.apply(
      self._tokenizer,
      [dict(message) for message in messages],
      self._now(),
      tools=[dict(tool) for tool in tools] or None,
      add_generation_prompt=not (is_answered or is_continued),
      continue_final_message=is_continued,
      **arguments,
    )

  def dated(self, date: datetime.datetime) -> "HuggingFaceTokenizer":
    """Returns a tokenizer whose chat template sees `date` as today."""
    fixed = copy.copy(self)
    fixed._now = lambda: date
    return fixed

  @property
  def chat_template(self) -> str:
    """The chat template in Jinja; "" if there is none."""
    return self._tokenizer.chat_template or ""

  def backend_json(self) -> str:
    """Returns the content of `tokenizer.json`."""
    return self._tokenizer.backend_tokenizer.to_str()

  def save(self, folder: pathlib.Path) -> None:
    """Writes the tokenizer's files and the EOS token ids."""
    self._tokenizer.save_pretrained(str(folder))
    _write_generation_config(folder, self.eos_ids, self.pad_id)


def _check_arguments(arguments: Mapping[str, Any], template: str) -> None:
  """Raises ValueError if a template does not use an argument."""
  for name, value in arguments.items():
    is_used = re.search(rf"\b{re.escape(name)}\b", template)
    if name in _NO_VARIABLES or not is_used:
      raise ValueError(
        f"chat_template_kwargs has {name!r} (value {value!r:.80}): expected "
        "the names of variables that the model's chat template uses"
      )


def _prefix_ids(tokenizer: Any) -> list[int]:
  """Returns the ids that a tokenizer of `transformers` puts before a text.

  Llama 3 and Gemma put BOS there, Qwen nothing. Tokens after the text, such as
  EOS, are dropped, because the response follows the prompt.
  """
  text = "a"
  plain = tokenizer.encode(text, add_special_tokens=False)
  whole = tokenizer.encode(text)
  for start in range(len(whole) - len(plain) + 1):
    if whole[start : start + len(plain)] == plain:
      return list(whole[:start])
  return []


def _write_generation_config(
  folder: pathlib.Path, eos_ids: Sequence[int], pad_id: int
) -> None:
  """Writes the EOS and padding ids for `transformers`."""
  generation = {"eos_token_id": list(eos_ids), "pad_token_id": pad_id}
  text = json.dumps(generation, indent=2)
  (folder / _GENERATION).write_text(text + "\n", encoding="utf-8")


def dated(tokenizer: Tokenizer, date: datetime.datetime) -> Tokenizer:
  """Returns a tokenizer whose chat template, if any, sees `date` as today.

  With the date of a run's first start, a resumed run has the same prompts.
  """
  if isinstance(tokenizer, HuggingFaceTokenizer):
    return tokenizer.dated(date)
  return tokenizer


def from_folder(folder: pathlib.Path) -> Tokenizer:
  """Loads a model folder's tokenizer; code in the folder never runs.

  The tokenizer is sentencepiece if `tokenizer.model` is the only tokenizer
  file, or if the other files are marked as a copy of it. A response may end
  with any EOS token named by the tokenizer, config.json or
  generation_config.json: the files often disagree, and chat models have
  several. Ids outside the vocabulary, such as -1, are ignored and reported.

  Raises:
    ValueError: no file of the folder names an EOS token in the vocabulary, or
      the tokenizer needs custom code.
  """
  sentencepiece_file = folder / "tokenizer.model"
  is_huggingface = any(
    (folder / name).exists()
    for name in ("tokenizer_config.json", "tokenizer.json")
  )
  if sentencepiece_file.exists() and (
    not is_huggingface or character_tokenizer.is_copy(folder)
  ):
    return SentencePieceTokenizer(sentencepiece_file)
  # A lazy import, because it is slow and warns if torch is missing.
  import transformers

  for name in _TOKENIZER_FILES:
    if not (folder / name).exists():
      continue
    fields = user_files.read_object(folder / name)
    if name == "tokenizer.json":
      _check_growth(folder / name, fields)
    if "auto_map" in fields:
      raise ValueError(
        f"{folder / name} has auto_map, but code in a model folder never runs: "
        "expected a tokenizer of transformers; remove the key if its class is "
        "one"
      )
  from_pretrained: Any = transformers.AutoTokenizer.from_pretrained
  with user_files.reading(folder, "a tokenizer that transformers can load"):
    tokenizer = from_pretrained(str(folder), trust_remote_code=False)
    # Loading does not check every value in the files; using them does.
    tokenizer.decode(tokenizer.encode("a"))
  named = {"the tokenizer": [tokenizer.eos_token_id]}
  named |= {
    name: _eos_ids(folder / name) for name in ("config.json", _GENERATION)
  }
  origins: dict[int, str] = {}
  for name, ids in named.items():
    for index in dict.fromkeys(ids):
      if index is not None:
        before = origins.get(index)
        origins[index] = f"{before} and {name}" if before else name
  size = max(tokenizer.get_vocab().values()) + 1
  unknown = {i: origins.pop(i) for i in [*origins] if not 0 <= i < size}
  if not origins:
    raise ValueError(
      f"{folder} names no eos_token_id in its vocabulary: expected one in "
      f"{_GENERATION}, config.json or the tokenizer's files"
    )
  return HuggingFaceTokenizer(tokenizer, origins, unknown)


def _check_growth(path: pathlib.Path, fields: Mapping[str, Any]) -> None:
  """Raises ValueError if the normalizer may make texts many times longer.

  A few chained replacements can turn one letter into gigabytes.
  """
  growth, parts = 1, [fields.get("normalizer")]
  for part in parts:
    if isinstance(part, dict):
      nested = part.get("normalizers")
      parts += nested if isinstance(nested, list) else []
      growth *= max(1, len(str(part.get("content") or "")))
  if growth > _MAX_GROWTH:
    raise ValueError(
      f"{path}: its normalizer makes texts up to {growth:.0e} times as long: "
      f"expected at most {_MAX_GROWTH} times"
    )


def _eos_ids(path: pathlib.Path) -> list[int]:
  """Returns the `eos_token_id` of a JSON file: one id, several or none.

  Raises:
    ValueError: the value is neither an id nor a list of ids.
  """
  if not path.exists():
    return []
  ids = user_files.read_object(path).get("eos_token_id")
  if ids is None:
    return []
  ids = ids if isinstance(ids, list) else [ids]
  if any(type(id_) is not int for id_ in ids):
    raise ValueError(f"{path} eos_token_id={ids!r}: expected integers")
  return ids
