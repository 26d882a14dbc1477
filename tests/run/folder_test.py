"""A run folder belongs to one config and one process."""

import ast
import contextlib

import pytest

from azr_jax.configs import azr
from azr_jax.parallel.hosts import Hosts
from azr_jax.run import folder as run_folder


def lock(folder, config):
  with run_folder.lock(folder, config.to_dict(), Hosts(1.0)):
    pass


def test_a_folder_of_another_run_is_refused(tmp_path):
  lock(tmp_path, azr.get_config("smollm2-135m"))
  # No run has started, so another config is allowed.
  lock(tmp_path, azr.get_config("tiny"))
  (tmp_path / "checkpoints").mkdir()
  (tmp_path / "metrics.jsonl").touch()
  lock(tmp_path, azr.get_config("smollm2-135m"))
  lock(tmp_path, azr.get_config("tiny"))
  (tmp_path / "metrics.jsonl").write_text('{"step": 1}')
  longer = azr.get_config("tiny")
  longer.train.steps += 5
  longer.mesh.fsdp = 4
  longer.executor.backend = "ray"
  longer.evaluation.every = 3
  lock(tmp_path, longer)
  for key, value, begun in (
    ("seed", "9", "0"),
    ("optimizer.moments", "'int8'", "'float32'"),
    ("model.param_dtype", "'bfloat16'", "'float32'"),
  ):
    other = azr.get_config("tiny")
    other.update_from_flattened_dict({key: ast.literal_eval(value)})
    with pytest.raises(ValueError, match=f"{key}={value}: expected {begun}"):
      lock(tmp_path, other)


def test_a_run_of_an_earlier_version_had_the_defaults_of_new_keys(tmp_path):
  (tmp_path / "metrics.jsonl").write_text('{"step": 1}')
  begun = {"learner": {"epochs": 2}}
  defaults = {"learner": {"epochs": 1, "new": ()}, "other": {"key": 3}}
  for new, refused in (((), False), ((4,), True)):
    run_folder.write_config(tmp_path, begun)
    config = {"learner": {"epochs": 2, "new": new}}
    expected = contextlib.nullcontext()
    if refused:
      expected = pytest.raises(ValueError, match=r"new=\[4\]: expected \[\],")
    with (
      expected,
      run_folder.lock(tmp_path, config, Hosts(1.0), defaults=defaults),
    ):
      pass


def test_a_damaged_config_is_named(tmp_path):
  lock(tmp_path, azr.get_config("tiny"))
  (tmp_path / "metrics.jsonl").write_text('{"step": 1}')
  (tmp_path / "config.json").write_text("{")
  with pytest.raises(ValueError, match="config.json: expected a JSON object"):
    lock(tmp_path, azr.get_config("tiny"))


def test_a_folder_in_use_is_refused(tmp_path):
  config = azr.get_config("tiny")
  with run_folder.lock(tmp_path, config.to_dict(), Hosts(1.0)):
    with pytest.raises(ValueError, match="in use by process"):
      lock(tmp_path, config)
  lock(tmp_path, config)
