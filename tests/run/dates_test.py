"""A resumed run's prompts show the date of its first start."""

import datetime as real
import types

import pytest
import tokenizers
import transformers

from azr_jax.models.tokenizers import HuggingFaceTokenizer
from azr_jax.run import dates, session


@pytest.fixture(name="tokenizer")
def make_tokenizer():
  """A tokenizer whose template contains the date, like Llama 3.2's."""
  wrapped = transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizers.ByteLevelBPETokenizer()._tokenizer,
    eos_token="</s>",
  )
  wrapped.chat_template = "{{ strftime_now('%d %b %Y') }}: {{ messages }}"
  return HuggingFaceTokenizer(wrapped, [0])


def start(folder, day, tokenizer, monkeypatch):
  """Starts or resumes a run on a given day, and returns one of its prompts."""

  clock = types.SimpleNamespace(
    now=lambda: real.datetime(2026, 1, day, 23, 30),
    fromisoformat=real.datetime.fromisoformat,
  )
  monkeypatch.setattr(dates, "datetime", types.SimpleNamespace(datetime=clock))
  with session.open_run(str(folder), {"seed": 0}, timeout_s=60.0):
    return tokenizer.apply_chat_template("hello")


def test_a_run_that_resumes_on_another_day_has_the_same_prompts(
  tmp_path, tokenizer, monkeypatch
):
  first = start(tmp_path / "a", 30, tokenizer, monkeypatch)
  assert first.startswith("30 Jan 2026: ")
  assert start(tmp_path / "a", 31, tokenizer, monkeypatch) == first
  other = start(tmp_path / "b", 31, tokenizer, monkeypatch)
  assert other.startswith("31 Jan 2026: ")


def test_a_damaged_date_is_named(tmp_path):
  (tmp_path / dates.DATE).write_text('{"first_start": "soon"}')
  with pytest.raises(ValueError, match="date.json: expected the date"):
    dates.read(tmp_path)
