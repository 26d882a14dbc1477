"""Serves a model over the OpenAI API: completions and chats, with streaming.

  python -m azr_jax.serve --model=SPEC|FOLDER|RUN [--port=8000]
  python -m azr_jax.serve --follow=RUN
  python -m azr_jax.serve --model=SPEC --adapters=NAME=FOLDER,NAME=FOLDER
  python -m azr_jax.serve --train --model=SPEC --workdir=FOLDER

`--follow` serves the newest checkpoint of a run while it trains; the model's id
includes the step. `--adapters` serves LoRA adapters beside the model, each as a
model of its own name; one batch may sample several.

`--train` also speaks the Tinker API: programs written for it train adapters, or
the whole model, and sample them (docs/guide/tinker.md). Saved states go to
`--workdir`.

The server listens on this machine only. For other machines, set `--host`, and
the API key that clients send as the environment variable AZR_SERVE_API_KEY.

SIGTERM or Ctrl-C ends it: requests in flight may continue for `serve.drain_s`
seconds, and new ones get status 503.
"""

import os

from absl import flags

from azr_jax.cli import compilation_cache, front
from azr_jax.cli.errors import UsageError
from azr_jax.config import settings as settings_lib
from azr_jax.serving import settings as serving_settings
from azr_jax.trainer import settings as train_settings


def run() -> None:
  """Runs the command."""
  config = front.config_flag("Sampling, layout and limits, as FILE:VARIANT.")
  model = flags.DEFINE_string("model", None, "A model spec or run folder.")
  follow = flags.DEFINE_string(
    "follow", None, "A run folder, to serve its newest checkpoint."
  )
  adapters = flags.DEFINE_list(
    "adapters",
    [],
    "NAME=FOLDER of LoRA adapters: in PEFT's format, or runs with lora.rank.",
  )
  train = flags.DEFINE_bool("train", False, "Whether clients may train.")
  workdir = flags.DEFINE_string("workdir", "", "Folder of saved states.")
  host = flags.DEFINE_string("host", "127.0.0.1", "Address to listen on.")
  port = flags.DEFINE_integer("port", 8000, "Port; 0: any free.", 0, 65535)
  name = flags.DEFINE_string("name", "", "The model's id; '': from --model.")

  def main() -> None:
    spec = model.value or follow.value
    if spec is None or (model.value and follow.value):
      raise UsageError("expected either --model=SPEC or --follow=RUN")
    if train.value != bool(workdir.value):
      raise UsageError("--train: expected --workdir=FOLDER with it")
    if follow.value and (train.value or adapters.value):
      raise UsageError("--follow: expected neither --train nor --adapters")
    compilation_cache.enable()
    # Imported here because it needs aiohttp, an optional dependency.
    from azr_jax.serving import command
    from azr_jax.serving.tinker import command as training

    address = command.Address(
      host.value, port.value, name.value, os.environ.get(command.API_KEY, "")
    )
    if train.value:
      training.serve(config.value, spec, address, workdir.value)
      return
    command.serve(
      config.value,
      spec,
      address,
      follows=follow.value is not None,
      adapters=adapters.value,
    )

  front.run(
    __doc__,
    main,
    lambda c: settings_lib.describe(
      train_settings.read(serving_settings.ServeSettings, c)
    ),
    default_config="configs/serve.py",
  )


if __name__ == "__main__":
  run()
