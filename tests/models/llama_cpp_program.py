"""Runs llama.cpp on a GGUF file: greedy continuations of prompts.

  python llama_cpp_program.py FILE < PROMPTS

The prompts are a JSON list. So is the output: for each prompt its ids, the ids
that follow, and pairs of an id and its log-probability as the next one.
"""

import json
import sys
import urllib.request

import xllamacpp  # pyrefly: ignore[missing-import] - the caller's environment.


def main() -> None:
  """Answers the prompts on standard input."""
  settings = xllamacpp.CommonParams()
  settings.model.path = sys.argv[1]
  settings.n_ctx, settings.n_parallel, settings.port = 1024, 1, 0
  settings.warmup = False
  # All in float32; flash attention rounds to float16.
  exact = xllamacpp.ggml_type.GGML_TYPE_F32
  settings.cache_type_k = settings.cache_type_v = exact
  off = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
  settings.flash_attn_type = off
  # Several threads would wait for each other on busy cores.
  settings.cpuparams.n_threads = 1
  server = xllamacpp.Server(settings)

  def post(path: str, body: dict) -> dict:
    request = urllib.request.Request(
      server.listening_address + path,
      json.dumps(body).encode(),
      {"Content-Type": "application/json"},
    )
    return json.load(urllib.request.urlopen(request))

  answers = []
  for prompt in json.load(sys.stdin):
    ids = post("/tokenize", {"content": prompt, "add_special": True})
    written = post(
      "/completion",
      {
        "prompt": prompt,
        "n_predict": 48,
        "samplers": ["top_k"],
        "top_k": 1,
        "return_tokens": True,
      },
    )
    text = ids["tokens"] + written["tokens"]
    # Without the bias, a byte that is no character would have no answer.
    last = post(
      "/completion",
      {
        "prompt": text,
        "n_predict": 1,
        "n_probs": 50,
        "logit_bias": [["a", 1000]],
      },
    )
    (step,) = last["completion_probabilities"]
    best = [(one["id"], one["logprob"]) for one in step["top_logprobs"]]
    answers.append([ids["tokens"], written["tokens"], best])
  sys.stdout.write(json.dumps(answers) + "\n")


if __name__ == "__main__":
  main()
