"""A program for the Tinker API, for any version of the SDK since 0.25.

  python tinker_program.py URL BASE_MODEL

It trains, samples, saves and resumes, and prints what it found as JSON.
"""

import json
import sys
import warnings
from importlib import metadata

import tinker
from tinker import types

TEXTS = ([5, 9, 7, 7, 30], [8, 6, 40, 41, 42, 43, 44, 9], [3, 4])


def done(found):
  """The result of a future; old versions return some results at once."""
  return found.result() if hasattr(found, "result") else found


def datum(ids):
  return types.Datum(
    model_input=types.ModelInput.from_ints(list(ids[:-1])),
    loss_fn_inputs={
      "target_tokens": types.TensorData(
        data=list(ids[1:]), dtype="int64", shape=[len(ids) - 1]
      ),
      "weights": types.TensorData(
        data=[1.0] * (len(ids) - 1), dtype="float32", shape=[len(ids) - 1]
      ),
    },
  )


def losses_of(model, steps):
  """The losses of some pipelined steps."""
  data, adam = (
    [datum(ids) for ids in TEXTS],
    types.AdamParams(learning_rate=0.02, eps=1e-8),
  )
  pending = [
    (model.forward_backward(data, "cross_entropy"), model.optim_step(adam))
    for _ in range(steps)
  ]
  return [
    (scored.result().metrics["loss:sum"], step.result().metrics["skipped"])[0]
    for scored, step in pending
  ]


def main(url, name):
  """What the program found."""
  warnings.simplefilter("ignore")
  client = tinker.ServiceClient(base_url=url, api_key="tml-test")
  model = done(client.create_lora_training_client(name, rank=2))
  first = losses_of(model, 3)
  path = model.save_state("third").result().path
  sampler = done(model.save_weights_and_get_sampling_client())
  prompt = types.ModelInput.from_ints(TEXTS[0])
  params = types.SamplingParams(max_tokens=4, temperature=1.0, seed=7)
  samples = [
    sampler.sample(prompt, 2, params).result().sequences for _ in range(2)
  ]
  scored = model.forward([datum(TEXTS[0])], "cross_entropy").result()
  after = losses_of(model, 2)
  resumed = done(client.create_training_client_from_state_with_optimizer(path))
  return {
    "version": metadata.version("tinker"),
    "losses": first,
    "after": after,
    "resumed": losses_of(resumed, 2),
    "tokens": [[one.tokens for one in some] for some in samples],
    "forward": scored.metrics["loss:sum"],
    "lora_rank": model.get_info().lora_rank,
    "path": path,
  }


if __name__ == "__main__":
  sys.stdout.write(json.dumps(main(*sys.argv[1:])))
