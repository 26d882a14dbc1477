"""Tokenizers of Hugging Face and sentencepiece behind one interface."""

import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import sentencepiece

from azr_jax.config import user_files
from azr_jax.models import character_tokenizer, chat_templates

_GENERATION = "generation_config.json"
# Normalizers of published tokenizers replace a character by at most a few.
_MAX_GROWTH = 1000
_TOKENIZER_FILES = (
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
)
# Parameters of `transformers` that are not template variables.
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

# A message of a chat: `role` and `content`.
Message = Mapping[str, str]


@runtime_checkable
class Tokenizer(Protocol):
  """What the rest of the code needs of a tokenizer.

  Attributes:
    eos_ids: EOS token ids.
    pad_id: the id that pads rows.
    vocab_size: one more than the largest id.
  """

  eos_ids: tuple[int, ...]
  pad_id: int
  vocab_size: int

  @property
  def has_chat_template(self) -> bool:
    """Whether `apply_chat_template` has one to apply."""
    ...

  def encode(self, text: str) -> list[int]:
    """Returns the ids of a text, without special tokens around it."""
    ...

  def encode_prompt(self, text: str) -> list[int]:
    """Returns the ids of a whole prompt, after the BOS token if there is one.

    Only the start of a sequence is encoded like this; later parts, such as
    tool output, are encoded by `encode`.
    """
    ...

  def decode(self, ids: list[int], skip_special: bool = False) -> str:
    """Returns the text of ids.

    EOS, BOS and padding tokens decode to nothing. Other special tokens, such as
    `<think>` in some vocabularies, decode to their text, because rewards and
    stop strings look for it.

    Args:
      ids: token ids.
      skip_special: leave out every special token.
    """
    ...

  def token_id(self, piece: str) -> int | None:
    """Returns the id whose text is exactly `piece`, or None."""
    ...

  def apply_chat_template(
    self,
    messages: str | Sequence[Message],
    is_answered: bool = False,
    tools: Sequence[Mapping[str, Any]] = (),
    is_continued: bool = False,
    arguments: Mapping[str, Any] | None = None,
  ) -> str:
    """Returns messages in the model's chat template, as text.

    `tasks/chats.py` uses it to write prompts.

    Args:
      messages: a user's message, or messages with role and content.
      is_answered: whether they are whole; otherwise the text ends where the
        assistant's next message begins.
      tools: that the model may call, as in OpenAI's requests; a template may
        leave them out.
      is_continued: whether the text ends inside the last message.
      arguments: variables of the template by name, such as `enable_thinking`.

    Raises:
      ValueError: the model has no chat template, or it refuses the messages,
        or does not use one of the arguments.
      chat_templates.RenderingFailed: the template exceeds a limit, or its
        process ends twice.
    """
    ...

  def save(self, folder: pathlib.Path) -> None:
    """Writes the files that `from_folder` loads the tokenizer from."""
    ...


class SentencePieceTokenizer:
  """A sentencepiece model file, as the embedded models have it."""

  has_chat_template = False

  def __init__(self, path: pathlib.Path):
    """Reads the file, here or in an object store.

    Raises:
      ValueError: it is no sentencepiece model.
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
    """Returns the ids of a text: a sentencepiece file has no BOS template."""
    return self.encode(text)

  def decode(self, ids: list[int], skip_special: bool = False) -> str:
    """Returns the text of ids.

    A model may have more ids than its tokenizer; these decode to nothing. So do
    control pieces, which have no text in sentencepiece.
    """
    del skip_special
    return self._model.decode([i for i in ids if i < self.vocab_size])

  def token_id(self, piece: str) -> int | None:
    """Returns the id whose text is exactly `piece`, or None."""
    ids = self.encode(piece)
    is_token = len(ids) == 1 and ids[0] != self._model.unk_id()
    return ids[0] if is_token else None

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
    """Writes `tokenizer.model` and, for `transformers`, a copy in its layout.

    The copy is only written for character-level models, which `transformers`
    would misread.
    """
    model = self._model.serialized_model_proto()
    (folder / "tokenizer.model").write_bytes(model)
    if character_tokenizer.is_character_level(self._model):
      character_tokenizer.save(self._model, folder)
      _write_generation_config(folder, self.eos_ids, self.pad_id)


class HuggingFaceTokenizer:
  """A fast tokenizer of `transformers`, with the EOS token ids.

  It is annotated as Any, because `transformers` is not imported here and its
  methods return unions by argument.
  """

  def __init__(
    self,
    tokenizer: Any,
    eos_ids: Mapping[int, str] | Sequence[int],
    unknown_eos: Mapping[int, str] | None = None,
  ):
    """Wraps a tokenizer.

    Args:
      tokenizer: a fast one of `transformers`.
      eos_ids: ids, the main one first; a mapping names where each comes from.
      unknown_eos: EOS ids that the files name and the vocabulary lacks, and
        where each comes from; `end_tokens` reports them.
    """
    self._tokenizer = tokenizer
    self.eos_ids: tuple[int, ...] = tuple(eos_ids)
    self._eos_origins = dict(eos_ids) if isinstance(eos_ids, Mapping) else {}
    self._unknown_eos = dict(unknown_eos or {})
    pad = tokenizer.pad_token_id
    self.pad_id: int = self.eos_ids[0] if pad is None else pad
    # Ids may have gaps, so the number of tokens may be smaller.
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
    """Each EOS token with its id and what names it, for people."""
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
    """Returns the ids of a whole prompt, with BOS where its template has one.

    A text that begins with the BOS token, as many chat templates write it, gets
    no second one.
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

    Ordinary tokens may merge across the borders of a piece, so only added
    tokens count as exact; other stop strings must be searched in the text.
    """
    return self._tokenizer.get_added_vocab().get(piece)

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
    """Returns messages in the model's chat template; see `Tokenizer`."""
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
      tools=[dict(tool) for tool in tools] or None,
      add_generation_prompt=not (is_answered or is_continued),
      continue_final_message=is_continued,
      **arguments,
    )

  @property
  def chat_template(self) -> str:
    """The chat template, a text of Jinja; "" without one."""
    return self._tokenizer.chat_template or ""

  def backend_json(self) -> str:
    """Returns the tokenizer as `tokenizer.json` has it."""
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

  Llama 3 and Gemma put BOS there, and Qwen nothing. Tokens after the text, such
  as EOS, are left out, because the response follows the prompt.
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


def from_folder(folder: pathlib.Path) -> Tokenizer:
  """Loads a model folder's tokenizer; code in the folder is never run.

  A folder with `tokenizer.model` alone has a sentencepiece tokenizer, and so
  has one whose other files say that they are a copy of it. A response may end
  with any EOS token that the tokenizer, config.json or generation_config.json
  names: the files often disagree, and chat models have several. Ids outside the
  vocabulary, such as -1, are ignored and reported.

  Raises:
    ValueError: no file of the folder names an EOS token of the vocabulary, or
      the tokenizer needs code of its own.
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
  # Imported here, because the import is slow and warns if torch is missing.
  import transformers

  for name in _TOKENIZER_FILES:
    if not (folder / name).exists():
      continue
    fields = user_files.read_object(folder / name)
    if name == "tokenizer.json":
      _check_growth(folder / name, fields)
    if "auto_map" in fields:
      raise ValueError(
        f"{folder / name} has auto_map, which names code that is never run: "
        "expected a tokenizer of transformers; remove the key if its class is "
        "one"
      )
  from_pretrained: Any = transformers.AutoTokenizer.from_pretrained
  with user_files.reading(folder, "a tokenizer that transformers can load"):
    tokenizer = from_pretrained(str(folder), trust_remote_code=False)
    # Loading does not check all values of the files; this call uses them.
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
      f"{folder} names no eos_token_id of its vocabulary: expected one in "
      f"{_GENERATION}, config.json or the tokenizer's files"
    )
  return HuggingFaceTokenizer(tokenizer, origins, unknown)


def _check_growth(path: pathlib.Path, fields: Mapping[str, Any]) -> None:
  """Raises ValueError if the normalizer makes texts many times longer.

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
    ValueError: the value is not one id or a list of ids.
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
