"""Exports a run's newest checkpoint to files that other programs run.

python -m azr_jax.export --workdir=RUN --out=DIR [--dtype=float32]

`--formats=safetensors` writes a folder that `transformers` and vLLM load,
`gguf` the file `model.gguf` for llama.cpp; both can be combined. README.md
becomes the model card: method, steps, rewards, config, and the benchmark scores
in `RUN_scores` (or `--scores`) next to the scores in `--base`.
`--critic` writes a run's critic, a token classifier of `transformers`.
`--push_to=OWNER/NAME` uploads the folder to the Hugging Face hub, with
HF_TOKEN.
"""

import pathlib

from absl import flags

from azr_jax.cli import front
from azr_jax.exports import hub_upload
from azr_jax.exports.command import FORMATS, SAFETENSORS, export
from azr_jax.run import console


def run() -> None:
  """Runs the command."""
  config = front.config_flag("Mesh and sharding.")
  workdir = flags.DEFINE_string(
    "workdir", None, "A run folder or model spec.", required=True
  )
  out = flags.DEFINE_string("out", None, "The folder to write.", required=True)
  dtype = flags.DEFINE_string(
    "dtype", "bfloat16", "Dtype of the weights; q8_0 for gguf only."
  )
  formats = flags.DEFINE_list(
    "formats", [SAFETENSORS], f"Comma-separated, from {','.join(FORMATS)}."
  )
  scores = flags.DEFINE_string(
    "scores", "", "Scores for the model card. Default: those in RUN_scores."
  )
  base = flags.DEFINE_string("base", "", "Scores before training.")
  critic = flags.DEFINE_bool(
    "critic", False, "Export the run's critic instead of its policy."
  )
  push_to = flags.DEFINE_string(
    "push_to", "", "OWNER/NAME on the Hugging Face hub to upload to."
  )
  private = flags.DEFINE_bool(
    "private", False, "Whether --push_to creates a private model."
  )

  def main() -> None:
    if push_to.value:
      hub_upload.check(push_to.value)
    export(
      config.value,
      workdir.value,
      out.value,
      dtype.value,
      formats.value,
      scores.value,
      base.value,
      push_to.value,
      critic.value,
    )
    if push_to.value:
      address = hub_upload.push(
        pathlib.Path(out.value).expanduser(),
        push_to.value,
        private.value,
        f"Export {pathlib.PurePath(workdir.value).name} as {dtype.value}",
      )
      console.print_status(f"{push_to.value} is at {address}")

  front.run(__doc__, main, default_config="configs/evaluate.py")


if __name__ == "__main__":
  run()
