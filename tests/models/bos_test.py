"""Prompts start with BOS where transformers' tokenizer adds it."""

import jax
import pytest
import tokenizers as hf_tokenizers
import transformers
from tokenizers import processors
from typed import present, stand_in

from azr_jax.corpora.corpus import Conversation
from azr_jax.models import gguf_tokenizer, tokenizers
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.weights import Weights

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
TEXTS = ["User: f(x)\n", " é", f"{BOS}User: f(x)", "", f"a{BOS}b"]
# Llama 3 writes the BOS token itself.
CHAT = "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Saves a byte-level tokenizer whose template adds BOS, as in Llama 3.1."""
  folder = tmp_path_factory.mktemp("bos")
  trained = hf_tokenizers.ByteLevelBPETokenizer()
  trained.train_from_iterator(
    TEXTS, 300, min_frequency=1, special_tokens=[BOS, EOS], show_progress=False
  )
  bos = trained.token_to_id(BOS)
  trained._tokenizer.post_processor = processors.TemplateProcessing(
    single=f"{BOS} $A", special_tokens=[(BOS, bos)]
  )
  transformers.PreTrainedTokenizerFast(
    tokenizer_object=trained._tokenizer,
    bos_token=BOS,
    eos_token=EOS,
    chat_template=CHAT,
  ).save_pretrained(folder)
  return folder


@pytest.fixture(scope="module")
def ours(folder):
  return tokenizers.from_folder(folder)


@pytest.fixture(scope="module")
def theirs(folder):
  return transformers.AutoTokenizer.from_pretrained(str(folder))


def without_second(ids, bos):
  """Drops the second BOS that `transformers` adds to a text that has one."""
  return ids[1:] if ids[:2] == [bos, bos] else ids


@pytest.mark.parametrize("text", TEXTS)
def test_a_prompt_has_the_ids_of_transformers(ours, theirs, text):
  expected = without_second(theirs(text)["input_ids"], theirs.bos_token_id)
  assert expected[0] == theirs.bos_token_id
  assert ours.encode_prompt(text) == expected
  assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)


def test_training_and_benchmarks_ask_with_bos(ours, theirs):
  policy = Policy(stand_in(Sampler), ours, Weights(), jax.random.key(0))
  assert list(policy.prompt(TEXTS[0]).token_ids) == theirs.encode(TEXTS[0])


def test_a_chat_prompt_has_one_bos(ours, theirs):
  message = {"role": "user", "content": "hello"}
  expected = theirs.apply_chat_template([message], return_dict=False)
  assert ours.encode_prompt(ours.apply_chat_template("hello")) == expected
  assert expected.count(theirs.bos_token_id) == 1


def test_supervised_training_has_bos_before_the_prompt_alone(ours, theirs):
  ids, loss_mask = Conversation("ab", ("cd", "!!", "e")).tokens(ours)
  pieces = [theirs.encode("ab")]
  pieces += [theirs.encode(t, add_special_tokens=False) for t in ("cd", "!!")]
  assert ids[: len(sum(pieces, []))] == sum(pieces, [])
  assert ids.count(theirs.bos_token_id) == 1
  assert not any(loss_mask[: len(pieces[0])])


def test_an_exported_tokenizer_keeps_its_template(ours, tmp_path):
  ours.save(tmp_path)
  exported = present(transformers.AutoTokenizer.from_pretrained(str(tmp_path)))
  again = tokenizers.from_folder(tmp_path)
  for text in TEXTS[:2]:
    assert exported.encode(text) == ours.encode_prompt(text)
    assert again.encode_prompt(text) == ours.encode_prompt(text)


@pytest.mark.parametrize(
  "pre, added, begins",
  [
    ("llama-bpe", None, True),
    ("llama-bpe", False, False),
    ("smollm", None, False),
    ("smollm", True, True),
  ],
)
def test_a_gguf_file_says_whether_prompts_begin_with_bos(pre, added, begins):
  metadata = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": pre,
    "tokenizer.ggml.tokens": ["a", "b", "ab", "<s>", "<e>"],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.token_type": [1, 1, 1, 3, 3],
    "tokenizer.ggml.bos_token_id": 3,
    "tokenizer.ggml.eos_token_id": 4,
  }
  if added is not None:
    metadata["tokenizer.ggml.add_bos_token"] = added
  tokenizer = gguf_tokenizer.from_metadata(metadata)
  assert tokenizer.encode_prompt("ab") == ([3, 2] if begins else [2])
  assert tokenizer.encode("ab") == [2]
