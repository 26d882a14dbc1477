"""A program of lm-evaluation-harness, for an environment that has it.

  python lm_eval_program.py MODEL_FOLDER TASKS_FOLDER LIMIT OUT

It runs the tasks on the data in the working folder, greedy in float32, and
writes what the model got, said and was graded to OUT, as JSON.
"""

import json
import pathlib
import sys
from importlib import metadata

# pyrefly: ignore[missing-import] - It has an environment of its own.
import lm_eval

# pyrefly: ignore[missing-import] - The same.
from lm_eval.models import huggingface

# pyrefly: ignore[missing-import] - The same.
from lm_eval.tasks import TaskManager


class Recorded(huggingface.HFLM):
  """Keeps the token ids of each prompt, without padding."""

  prompt_ids = {}

  def tok_batch_encode(self, strings, *arguments, **options):
    ids, mask = super().tok_batch_encode(strings, *arguments, **options)
    for text, row, real in zip(strings, ids, mask, strict=True):
      self.prompt_ids[text] = row[real.bool()].tolist()
    return ids, mask


def main(model_folder, tasks_folder, limit):
  names = [path.stem for path in pathlib.Path(tasks_folder).glob("*.yaml")]
  model = Recorded(
    pretrained=model_folder, dtype="float32", device="cpu", batch_size=limit
  )
  found = lm_eval.simple_evaluate(
    model=model,
    tasks=names,
    task_manager=TaskManager(include_path=tasks_folder, include_defaults=False),
    limit=limit,
    apply_chat_template=True,
    bootstrap_iters=0,
  )
  items = {
    name: [
      {
        "prompt_ids": model.prompt_ids[sample["arguments"][0][0]],
        "response": sample["resps"][0][0],
        "correct": bool(sample["exact_match"]),
      }
      for sample in sorted(samples, key=lambda s: s["doc_id"])
    ]
    for name, samples in found["samples"].items()
  }
  versions = {
    name: metadata.version(name)
    for name in ("lm-eval", "transformers", "torch")
  }
  return {"items": items, "versions": versions}


if __name__ == "__main__":
  *given, out = sys.argv[1:]
  folder, tasks, number = given
  result = main(folder, tasks, int(number))
  pathlib.Path(out).write_text(json.dumps(result), encoding="utf-8")
