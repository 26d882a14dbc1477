"""Random conversations whose scripts really run.

The model samples whole pieces of text, so it writes blocks, answers and
nonsense by chance. Each conversation is checked token by token and against one
forward pass.
"""

import contextlib
import dataclasses
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from letters import Letters
from rollout_model import CONFIG, RULES

from azr_jax import types
from azr_jax.executor import Executor
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.models import transformer
from azr_jax.parallel.hosts import Hosts
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.tool_runner import split_responses
from azr_jax.tools import code_blocks
from azr_jax.tools.python_tool import PythonTool, PythonToolSettings

SANDBOX = ExecutorSettings(timeout_s=1.0)
# Scripts and their tool output; None is computed by running it in this process.
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
# Token ids per piece, so that the model mostly samples blocks and words.
COPIES = 40
# The script with this word has a single id, because each run takes a second.
SLOW = "while"


class PieceTokenizer(Letters):
  """Ids are bytes, then pieces; id 0 is the end-of-text token."""

  def __init__(self):
    fast = [block for block in BLOCKS if SLOW not in block]
    pieces = [*fast * COPIES, *BLOCKS, *WORDS * (COPIES // 4)]
    self.pieces = [bytes([i]) for i in range(256)] + [
      piece.encode() for piece in pieces
    ]
    self.vocab_size = len(self.pieces)

  def encode(self, text):
    return list(text.encode())

  def decode(self, ids, skip_special=False):
    return b"".join(self.pieces[i] for i in ids if i).decode("utf-8", "replace")

  def token_id(self, piece):
    del piece


TOKENIZER = PieceTokenizer()
SHAPE = dataclasses.replace(CONFIG, vocab_size=TOKENIZER.vocab_size)
MODEL = transformer.Transformer(SHAPE)
SETTINGS = PythonToolSettings(max_calls=8, max_output_tokens=60)


@pytest.fixture(scope="module")
def conversations(one_device_mesh):
  """Returns parameters, prompts, 60 sampled conversations and metrics."""
  sampler = Sampler(
    MODEL,
    TOKENIZER,
    one_device_mesh,
    RULES,
    SamplerSettings(
      slots=32,
      prompt_buckets=(8,),
      max_tokens=800,
      prefill_tokens=64,
      decode_chunk=4,
      page_size=64,
      extend_chunk=32,
      stop_strings=(),
    ),
  )
  params = transformer.init_params(MODEL, jax.random.key(1))
  prompts = [
    types.Prompt(str(i), tuple(TOKENIZER.encode(f"{i:3} "))) for i in range(12)
  ]
  with Executor(workers=2, timeout_s=1.0, memory_mb=512) as executor:
    tool = PythonTool(
      TOKENIZER,
      executor,
      Hosts(1.0),
      importable=SANDBOX.libraries,
      timeout_s=SANDBOX.timeout_s,
      **vars(SETTINGS),
    )
    sampled = list(
      sampler.generate(
        sampler.compute_params(params),
        prompts,
        5,
        jax.random.key(3),
        tool_runner=tool,
      )
    )
    metrics = tool.metrics()
  assert len(sampled) == 60
  return params, prompts, sampled, metrics


def expected_output(code):
  """Returns a script's tool output, by running it in this process.

  Returns None if the script fails, since tracebacks depend on the process.
  """
  script = code.strip()
  if SCRIPTS.get(script) is not None:
    return SCRIPTS[script]
  out = io.StringIO()
  with contextlib.redirect_stdout(out):
    try:
      exec(compile(code, "run.py", "exec"), {})
    except Exception:  # noqa: BLE001 - any failure of a script.
      return None
  return out.getvalue().strip() or "(nothing was printed)"


@pytest.mark.slow
def test_every_token_is_of_a_response_or_a_tool_output(conversations):
  _, _, sampled, metrics = conversations
  reasons, num_outputs, scripts_run = set(), 0, set()
  for _, _, completion in sampled:
    ids = completion.token_ids.tolist()
    mask = completion.loss_mask.tolist()
    responses = split_responses(ids, mask)
    outputs = split_responses(ids, [not is_model for is_model in mask])
    reasons.add(completion.finish_reason)
    num_outputs += len(outputs)
    assert mask[0] and len(outputs) <= 8
    assert len(responses) in (len(outputs), len(outputs) + 1)
    for response, output in zip(responses, outputs, strict=False):
      scripts_run.add(check_turn(response, TOKENIZER.decode(output)))
    if completion.finish_reason == "stop":
      assert ids[-1] == 0 or "<<<7>>>" in TOKENIZER.decode(responses[-1])
    if completion.finish_reason == "turns":
      assert len(outputs) == 8 and len(responses) == 9
  assert reasons >= {"stop", "turns"}
  assert scripts_run >= set(SCRIPTS)
  assert metrics["interpreter/calls"] >= num_outputs > 90


def check_turn(response, output):
  """Checks a tool output against the response's script; returns the script."""
  block = code_blocks.find_tool_call(TOKENIZER.decode(response))
  assert block is not None
  # The response ended with the token that closed its block.
  assert code_blocks.find_block(TOKENIZER.decode(response[:-1])) is None
  prefix, suffix = code_blocks.OUTPUT_PREFIX, code_blocks.OUTPUT_SUFFIX
  assert output.startswith(prefix) and output.endswith(suffix)
  output = output.removeprefix(prefix).removesuffix(suffix)
  expected = expected_output(block.code)
  if expected is None:
    assert "Error" in output or "\n...\n" in output
  elif len(expected.encode()) <= 60:
    assert output == expected
  else:
    assert output.count("a") == 60 and "\n...\n" in output
  return block.code.strip()


@pytest.mark.slow
def test_logprobs_are_those_of_one_forward_pass(conversations):
  params, prompts, sampled, _ = conversations

  @jax.jit
  def score(tokens):
    hidden, _ = MODEL.apply(
      {"params": params}, tokens, jnp.arange(tokens.shape[1])[None]
    )
    logits = hidden @ transformer.unembedding(params, SHAPE)
    return jax.nn.log_softmax(logits)[0]

  for index, _, completion in sampled:
    prompt = list(prompts[index].token_ids)
    ids = prompt + completion.token_ids.tolist()
    tokens = np.zeros((1, 808), np.int32)
    tokens[0, : len(ids)] = ids
    positions = np.arange(len(prompt) - 1, len(ids) - 1)
    expected = np.asarray(score(tokens))[positions, completion.token_ids]
    mask = completion.loss_mask
    np.testing.assert_allclose(
      completion.logprobs[mask], expected[mask], atol=1e-4
    )
    assert not completion.logprobs[~mask].any()
