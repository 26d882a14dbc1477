"""Small tokenizer files for tests."""

import tokenizers as hf_tokenizers
import transformers

TEXT = 'User: f(x)\n  ```python\ndef f(a):\n    return "é"\n```</answer>'
EOS = "<|endoftext|>"


def save_tokenizer(folder):
  """Saves a small byte-level tokenizer in Hugging Face format."""
  trained = hf_tokenizers.ByteLevelBPETokenizer()
  trained.train_from_iterator(
    [TEXT], 280, min_frequency=1, special_tokens=[EOS], show_progress=False
  )
  transformers.PreTrainedTokenizerFast(
    tokenizer_object=trained._tokenizer, eos_token=EOS
  ).save_pretrained(folder)
