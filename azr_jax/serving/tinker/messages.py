"""The protobuf messages of the Tinker API, built from their field numbers.

No schema is published; the numbers are those that the SDK sends and reads.
Fields that no request of ours needs are left out, and unknown ones are kept
unread.
"""

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "tinker_public"
_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
  "bool": _Field.TYPE_BOOL,
  "bytes": _Field.TYPE_BYTES,
  "double": _Field.TYPE_DOUBLE,
  "int32": _Field.TYPE_INT32,
  "int64": _Field.TYPE_INT64,
  "string": _Field.TYPE_STRING,
}
# Message -> its fields: number, name and type. `*TYPE` is repeated, and
# `map TYPE` maps strings.
_MESSAGES = {
  "Csr": ((1, "values", "bytes"), (2, "crow", "bytes"), (3, "col", "bytes")),
  "Tensor": (
    (1, "dense", "bytes"),
    (2, "sparse_csr", "Csr"),
    (3, "dtype", "int32"),
    (4, "shape", "*int64"),
  ),
  "EncodedText": ((1, "tokens", "bytes"),),
  "Chunk": (
    (1, "encoded_text", "EncodedText"),
    (2, "image", "bytes"),
    (3, "dmel", "bytes"),
  ),
  "Datum": (
    (1, "model_input", "*Chunk"),
    (2, "loss_fn_inputs", "map Tensor"),
  ),
  "Setting": ((1, "number", "double"), (2, "text", "string")),
  "ForwardBackwardRequest": (
    (1, "model_id", "string"),
    (2, "seq_id", "int32"),
    (3, "data", "*Datum"),
    (4, "loss_fn", "string"),
    (5, "loss_fn_config", "map double"),
    (6, "forward_only", "bool"),
    (7, "loss_fn_config_v2", "map Setting"),
  ),
  "BatchedTensor": (
    (1, "data", "bytes"),
    (2, "offsets", "bytes"),
    (3, "dtype", "int32"),
    (4, "trailing_shape", "*int64"),
  ),
  "ArrayRecord": (
    (1, "type_tag", "string"),
    (2, "arrays", "map BatchedTensor"),
    (3, "num_datums", "int32"),
  ),
  "ForwardBackwardOutput": (
    (1, "loss_fn_output_type", "string"),
    (2, "loss_fn_outputs", "*ArrayRecord"),
    (3, "metrics", "map double"),
  ),
  "TopkLogprobs": (
    (1, "token_ids", "bytes"),
    (2, "logprobs", "bytes"),
    (3, "k", "int32"),
    (4, "length", "int32"),
  ),
  "Sequence": (
    (1, "stop_reason", "int32"),
    (2, "tokens", "bytes"),
    (3, "logprobs", "bytes"),
    (4, "topk_logprobs", "TopkLogprobs"),
  ),
  "SampleResponse": (
    (1, "sequences", "*Sequence"),
    (2, "prompt_logprobs", "bytes"),
    (3, "topk_prompt_logprobs", "TopkLogprobs"),
    (4, "prompt_cache_hit_tokens", "int32"),
    (5, "target_prompt_logprobs", "Tensor"),
  ),
}


def new(name: str) -> Any:
  """Returns an empty message of a type."""
  return _classes()[name]()


@functools.cache
def _classes() -> dict[str, Any]:
  """Returns the class of each message."""
  # The proto2 syntax tells a missing number from a zero.
  file = descriptor_pb2.FileDescriptorProto(
    name="tinker_public.proto", package=_PACKAGE, syntax="proto2"
  )
  for name, fields in _MESSAGES.items():
    message = file.message_type.add(name=name)
    for number, field, kind in fields:
      _add_field(message, number, field, kind)
  pool = descriptor_pool.DescriptorPool()
  pool.Add(file)
  return {
    name: message_factory.GetMessageClass(
      pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
    )
    for name in _MESSAGES
  }


def _add_field(message: Any, number: int, name: str, kind: str) -> None:
  """Adds a field to a message's descriptor."""
  field = message.field.add(name=name, number=number)
  field.label = _Field.LABEL_OPTIONAL
  if kind.startswith("map "):
    entry = message.nested_type.add(name=_entry_name(name))
    entry.options.map_entry = True
    _add_field(entry, 1, "key", "string")
    _add_field(entry, 2, "value", kind.removeprefix("map "))
    field.label = _Field.LABEL_REPEATED
    field.type = _Field.TYPE_MESSAGE
    field.type_name = f".{_PACKAGE}.{message.name}.{entry.name}"
    return
  if kind.startswith("*"):
    kind = kind.removeprefix("*")
    field.label = _Field.LABEL_REPEATED
    field.options.packed = kind in _TYPES
  if kind in _TYPES:
    field.type = _TYPES[kind]
  else:
    field.type = _Field.TYPE_MESSAGE
    field.type_name = f".{_PACKAGE}.{kind}"


def _entry_name(field: str) -> str:
  """Returns the name that protobuf requires of the entries of a map."""
  return "".join(part.capitalize() for part in field.split("_")) + "Entry"
