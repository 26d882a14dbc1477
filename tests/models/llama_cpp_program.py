"""Runs llama.cpp on a GGUF file: ids and greedy continuations of prompts.

  python llama_cpp_program.py FILE < PROMPTS

The prompts are a JSON list. So is the output: for each prompt, a pair of its
ids and the ids that follow.
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
  settings.cpuparams.n_threads = 2
  settings.warmup = False
  # Rounded keys and values would write another text at a near tie.
  exact = xllamacpp.ggml_type.GGML_TYPE_F32
  settings.cache_type_k = settings.cache_type_v = exact
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
    answers.append([ids["tokens"], written["tokens"]])
  sys.stdout.write(json.dumps(answers) + "\n")


if __name__ == "__main__":
  main()
