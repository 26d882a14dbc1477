"""Random conversations with code that is really run.

The model draws from a vocabulary of whole pieces of text, so that chance
writes blocks, answers and nonsense; every one of its conversations is checked
token by token, and against one forward pass.
"""

import contextlib
import dataclasses
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rollout_model import CONFIG, RULES

from azr_jax import types
from azr_jax.executor import Executor
from azr_jax.models import transformer
from azr_jax.parallel.hosts import Hosts
from azr_jax.rollout import code_blocks
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.environment import split_replies
from azr_jax.rollout.python_tool import PythonTool, PythonToolSettings
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.token_sampling import SamplingParams

# Runnable pieces with what they print, or None where the text says why not.
SCRIPTS = {
  "print('```')": "```",
  "print('<<<x>>>')": "<<<x>>>",
  "print('ü€ 語')": "ü€ 語",
  "print(6 * 7)": "42",
  "x = 3": "(nothing was printed)",
  "print('a' * 10_000_000)": None,
  "while True: pass": "TimeoutExpired: Command 'run.py' timed out after 1 "
  "seconds.",
  "1 / 0": None,
}
BLOCKS = [f"```python\n{script}\n```" for script in SCRIPTS]
WORDS = [
  "hm ",
  "\n",
  "<<<7>>>",
  "```python\n",
  "```",
  "```\n",
  "print(1)\n",
  "語",
]
MANY = 40  # Ids of each piece: what is drawn is mostly blocks and words.
SLOW = "while"  # Has few ids: each takes a second.


class PieceTokenizer:
  """Bytes, then pieces; id 0 ends a text."""

  eos_ids = (0,)
  pad_id = 0

  def __init__(self):
    fast = [block for block in BLOCKS if SLOW not in block]
    pieces = [*fast * MANY, *BLOCKS, *WORDS * (MANY // 4)]
    self.pieces = [bytes([i]) for i in range(256)] + [
      piece.encode() for piece in pieces
    ]
    self.vocab_size = len(self.pieces)

  def encode(self, text):
    return list(text.encode())

  def decode(self, ids):
    return b"".join(self.pieces[i] for i in ids if i).decode("utf-8", "replace")

  def token_id(self, piece):
    del piece


TOKENIZER = PieceTokenizer()
SHAPE = dataclasses.replace(CONFIG, vocab_size=TOKENIZER.vocab_size)
MODEL = transformer.Transformer(SHAPE)
SETTINGS = PythonToolSettings(max_calls=8, result_tokens=60, timeout_s=1.0)


@pytest.fixture(scope="module")
def conversations(one_device_mesh):
  sampler = Sampler(
    MODEL,
    TOKENIZER,
    one_device_mesh,
    RULES,
    SamplerSettings(
      slots=64,
      prompt_buckets=(8,),
      max_tokens=800,
      prefill_tokens=64,
      decode_chunk=4,
      cache_chunk=64,
      extend_chunk=32,
      stop_strings=(),
      
    ),
  )
  params = transformer.init_params(MODEL, jax.random.key(1))
  prompts = [
    types.Prompt(str(i), tuple(TOKENIZER.encode(f"{i:3} "))) for i in range(40)
  ]
  with Executor(workers=2, timeout_s=1.0, memory_mb=512) as executor:
    turns = PythonTool(SETTINGS, TOKENIZER, executor, Hosts(1.0))
    found = list(
      sampler.generate(
        sampler.compute_params(params),
        prompts,
        5,
        jax.random.key(3),
        environment=turns,
      )
    )
    metrics = turns.metrics()
  assert len(found) == 200
  return params, prompts, found, metrics


def expected_result(code):
  """What the model is to be shown, by a run of the code in this process."""
  script = code.strip()
  if SCRIPTS.get(script) is not None:
    return SCRIPTS[script]
  out = io.StringIO()
  with contextlib.redirect_stdout(out):
    try:
      exec(compile(code, "run.py", "exec"), {})
    except Exception:  # noqa: BLE001 - the traceback is compared by its end.
      return None
  return out.getvalue().strip() or "(nothing was printed)"


def test_every_token_is_the_models_or_a_results(conversations):
  _, _, found, metrics = conversations
  reasons, calls, seen = set(), 0, set()
  for _, _, completion in found:
    ids = completion.token_ids.tolist()
    own = completion.loss_mask.tolist()
    replies = split_replies(ids, own)
    results = split_replies(ids, [not one for one in own])
    reasons.add(completion.finish_reason)
    calls += len(results)
    assert own[0] and len(results) <= 8
    assert len(replies) in (len(results), len(results) + 1)
    for reply, result in zip(replies, results, strict=False):
      text = TOKENIZER.decode(reply)
      block = code_blocks.block_to_run(text)
      # Ended by the piece that closed the block, and not before.
      assert block is not None
      assert code_blocks.find_block(TOKENIZER.decode(reply[:-1])) is None
      shown = TOKENIZER.decode(result)
      assert shown.startswith(code_blocks.LABEL) and shown.endswith(
        code_blocks.AFTER
      )
      shown = shown.removeprefix(code_blocks.LABEL).removesuffix(
        code_blocks.AFTER
      )
      want = expected_result(block.code)
      seen.add(block.code.strip())
      if want is None:
        assert "Error" in shown or "\n...\n" in shown
      elif len(want.encode()) <= 60:
        assert shown == want
      else:
        assert shown.count("a") == 60 and "\n...\n" in shown
    if completion.finish_reason == "stop":
      text = TOKENIZER.decode(replies[-1])
      assert ids[-1] == 0 or "<<<7>>>" in text
    if completion.finish_reason == "turns":
      assert len(results) == 8 and len(replies) == 9
  assert reasons >= {"stop", "turns"}
  assert seen >= set(SCRIPTS) and metrics["interpreter/calls"] >= calls > 300


def test_logprobs_are_those_of_one_forward_pass(conversations):
  params, prompts, found, _ = conversations

  @jax.jit
  def score(tokens):
    hidden, _ = MODEL.apply(
      {"params": params}, tokens, jnp.arange(tokens.shape[1])[None]
    )
    logits = hidden @ transformer.unembedding(params, SHAPE)
    return jax.nn.log_softmax(logits)[0]

  for index, _, completion in found:
    prompt = list(prompts[index].token_ids)
    ids = prompt + completion.token_ids.tolist()
    tokens = np.zeros((1, 808), np.int32)
    tokens[0, : len(ids)] = ids
    places = np.arange(len(prompt) - 1, len(ids) - 1)
    want = np.asarray(score(tokens))[places, completion.token_ids]
    own = completion.loss_mask
    np.testing.assert_allclose(completion.logprobs[own], want[own], atol=1e-4)
    assert not completion.logprobs[~own].any()
