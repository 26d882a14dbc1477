"""A tokenizer with one token per letter."""

from azr_jax.models.tokenizers import Tokenizer


class Letters(Tokenizer):
  """Code points as ids. Id 0 is the end-of-text token."""

  eos_ids: tuple[int, ...] = (0,)
  pad_id = 0
  vocab_size = 128
  has_chat_template = False

  def encode(self, text):
    return list(map(ord, text))

  def encode_prompt(self, text):
    return self.encode(text)

  def decode(self, ids, skip_special=False):
    return "".join(chr(i) for i in ids if i)

  def token_id(self, piece):
    return ord(piece) if len(piece) == 1 else None

  def vocabulary(self):
    return {i: chr(i) for i in range(self.vocab_size)}

  def apply_chat_template(self, messages, *_, **__) -> str:
    raise ValueError("the model has no chat template")

  def save(self, folder):
    raise NotImplementedError
