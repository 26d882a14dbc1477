"""Tests improvement potential and rejection sampling of a model's answers."""

import json

import pytest
import training

from azr_jax import sft
from azr_jax.configs import potential as potential_config
from azr_jax.configs import sft as sft_config
from azr_jax.configs import trajectories as trajectories_config
from azr_jax.grading import questions as grading
from azr_jax.lab.data import question_potential, rejection_sampling
from azr_jax.tasks.questions import pass_rates, sources
from azr_jax.tools import code_blocks

training.needs("reasoning_gym", extra="gym")

QUESTIONS = ("gym:gcd", "gym:spell_backward")
MODEL = "embedded:code-tiny"


def smaller(config, section):
  config[section].questions = QUESTIONS
  config[section].count = 3
  config.rollout.slots = 8
  config.rollout.page_size = 192  # One length, so one program.
  config.executor.workers = 1
  return config


def potential_of(folder, **changes):
  config = smaller(potential_config.get_config("tiny"), "potential")
  config.potential.agents = ("text", "code_agent")
  config.potential.temperatures = (1.0,)
  config.potential.update(changes)
  return question_potential.estimate(config, MODEL, str(folder))


@pytest.mark.slow
def test_potential_counts_correct_answers_and_resumes(tmp_path, on_one_device):
  rates = potential_of(tmp_path)
  questions = sources.read_all(QUESTIONS, 3, 1)
  assert len(rates) == len(questions) == 6
  assert all(rate.num_samples == 2 for rate in rates)
  files = {
    path.name: path.read_bytes()
    for path in tmp_path.glob("*.jsonl")
    if path.name != question_potential.FILE
  }
  assert set(files) == {"text_1.jsonl", "code_agent_1.jsonl"}
  correct = {q.id: 0 for q in questions}
  for content in files.values():
    for line in content.splitlines():
      record = json.loads(line)
      correct[record["id"]] += record["correct"][0]
  assert [rate.num_correct for rate in rates] == [
    correct[q.id] for q in questions
  ]
  assert (
    pass_rates.read_for(tmp_path / question_potential.FILE, questions) == rates
  )
  # One file ends in the middle of a line, another is missing.
  (tmp_path / question_potential.FILE).unlink()
  (tmp_path / "code_agent_1.jsonl").unlink()
  cut = tmp_path / "text_1.jsonl"
  cut.write_bytes(cut.read_bytes()[:-20])
  assert potential_of(tmp_path) == rates
  with pytest.raises(ValueError, match="expected \\[1.0\\], the value that"):
    potential_of(tmp_path, temperatures=(0.9,))


@pytest.mark.slow
def test_a_model_learns_from_its_own_correct_answers(
  tmp_path, context, on_one_device
):
  config = smaller(trajectories_config.get_config("tiny"), "trajectories")
  config.trajectories.solution_styles = ("code", "text")
  config.trajectories.samples = 2
  config.trajectories.per_task = 4
  chosen = rejection_sampling.sample(config, MODEL, str(tmp_path / "own"))
  references = {q.id: q for q in sources.read_all(QUESTIONS, 3, 2)}
  verdicts = []
  for conversation in chosen:
    question = references[conversation.id]
    answer = code_blocks.find_answer(conversation.turns[-1])
    verdicts.append(
      context.jobs.submit(
        lambda executor, q=question, a=answer: grading.submit(
          executor, q.task, q.reference, a
        )
      )
    )
    assert question.text.strip() in conversation.prompt
    assert conversation.prompt.endswith(f"{conversation.solution_style}\n")
  context.jobs.wait_all()
  assert all(verdict.result() for verdict in verdicts)
  with_code = [
    conversation for conversation in chosen if len(conversation.turns) == 3
  ]
  assert with_code and all(
    conversation.solution_style == "code" for conversation in with_code
  )
  for conversation in with_code:
    assert conversation.turns[1].startswith(code_blocks.OUTPUT_PREFIX)
    assert conversation.turns[1].endswith(code_blocks.OUTPUT_SUFFIX)
  assert sum(conversation.task == "gym/gcd" for conversation in chosen) <= 4

  learning = sft_config.get_config("code_tiny_own")
  learning.demonstrations.path = str(tmp_path / "own" / rejection_sampling.FILE)
  learning.learner.micro_rows = 2
  learning.optimizer.decay_steps = 8
  learning.train.steps = 8
  learning.train.save_every = 8
  sft.train(learning, str(tmp_path / "sft"))
  lines = (tmp_path / "sft" / "metrics.jsonl").read_text().splitlines()
  losses = [json.loads(line)["learner/nll"] for line in lines]
  assert losses[-1] < losses[0]
  learning.demonstrations.path = str(tmp_path / "nothing.jsonl")
  with pytest.raises(ValueError, match="no such file"):
    sft.train(learning, str(tmp_path / "other"))
