"""Traces of steps, written and read back."""

import jax
import jax.numpy as jnp
import pytest
import training

from azr_jax.run import profiling, session


@pytest.mark.parametrize(
  "text, steps",
  [("", []), ("3", [3]), ("3-5", [3, 4, 5]), ("1-1", [1]), ("10", [10])],
)
def test_steps_are_read(text, steps):
  assert list(profiling.read_steps(text, 10)) == steps


@pytest.mark.parametrize(
  "text", ["0", "0-2", "5-3", "9-11", "11", "a", "3-", "-3", "3,5", "3 - 5"]
)
def test_steps_that_are_none_of_the_run_are_refused_in_one_line(text):
  with pytest.raises(ValueError) as caught:
    profiling.read_steps(text, 10)
  assert str(caught.value) == (
    f"--profile_steps={text}: expected steps such as 3 or 3-5, from 1 to "
    "config.train.steps=10"
  )


def spans(folder, done, chosen, stop_after=None, store=""):
  """Trains with a phase in each step, and reads the trace."""
  with session.open_run(f"{store}{folder}", {}, 1.0) as run:
    steps = profiling.profiled(range(done + 1, 7), chosen, run)
    for step in steps:
      with jax.profiler.TraceAnnotation("a_phase"):
        jax.block_until_ready(jnp.ones(3) + step)
      if step == stop_after:
        break
    steps.close()
  names = training.spans_of(folder)
  return {
    name: n for name, n in names.items() if name[:5] in ("step ", "a_pha")
  }


@pytest.mark.parametrize("store", ["", "file://"])
def test_a_resumed_run_profiles_the_steps_that_are_left(tmp_path, store):
  folder = tmp_path / "run"
  want = {"step 4": 1, "step 5": 1, "a_phase": 2}
  assert spans(folder, 3, range(2, 6), store=store) == want
  # Nothing else is left, such as a temporary folder.
  assert {path.name for path in (folder / "profile").iterdir()} == {"plugins"}


def test_a_run_that_is_stopped_keeps_what_it_has_traced(tmp_path):
  counts = spans(tmp_path, 0, range(2, 6), stop_after=3, store="file://")
  assert counts == {"step 2": 1, "step 3": 1, "a_phase": 2}


def test_steps_that_are_done_are_said_to_be(tmp_path, capsys):
  with session.open_run(str(tmp_path), {}, 1.0) as run:
    assert list(profiling.profiled(range(6, 8), range(3, 6), run)) == [6, 7]
  assert "steps 3 to 5 are done: nothing is profiled" in capsys.readouterr().err
  assert not (tmp_path / "profile").exists()
