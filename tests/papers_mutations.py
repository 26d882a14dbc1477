"""A line to break for each row of `docs/papers.md`; the row's tests must fail.

`papers_test.py` breaks the line in a copy of the package and runs the tests.
Rows that name the same formula share a line.
"""

import dataclasses

VALUES = "test_a_default_that_leaves_the_paper_has_a_row"


@dataclasses.dataclass(frozen=True)
class Mutation:
  """A line to break.

  Attributes:
    rows: rows that depend on the line, each as the start of `FILE | FIRST CELL
      | SECOND CELL`.
    file: the file of the line.
    line: the text to break, which occurs once in the file.
    broken: the text that replaces it.
    tests: tests of which at least one must fail. The rows name each test or
      its file.
  """

  rows: tuple[str, ...]
  file: str
  line: str
  broken: str
  tests: tuple[str, ...]

  @property
  def name(self) -> str:
    """The test's parameter id, made from the first row."""
    words = "".join(c if c.isalnum() else " " for c in self.rows[0]).split()
    return "_".join(words)


def _of(*rows: str, file: str, line: str, broken: str, tests: str) -> Mutation:
  return Mutation(rows, file, line, broken, tuple(tests.split()))


def _value(*rows: str, file: str, line: str, broken: str) -> Mutation:
  """Returns a changed value, which the test of all values must detect."""
  config = rows[0].partition(" ")[0]
  return Mutation(
    rows, file, line, broken, (f"tests/papers_test.py::{VALUES}[{config}]",)
  )


_AZR = (
  _of(
    "azr | eq. 1 |",
    file="azr_jax/learner/objective.py",
    line="    nll = -logprobs\n",
    broken="    nll = logprobs\n",
    tests="tests/evaluate_test.py::test_supervised_training_learns_and_resumes",
  ),
  _of(
    "azr | eq. 2 |",
    file="azr_jax/systems/azr/trajectories.py",
    line="(solution.formatted, solution.correct, rules)",
    broken="(solution.formatted, False, rules)",
    tests="tests/systems/azr/azr_test.py",
  ),
  _of(
    "azr | eq. 3 |",
    file="azr_jax/systems/azr/trajectories.py",
    line="    group_id=(proposal.task_type, PROPOSE),",
    broken="    group_id=(proposal.task_type, SOLVE),",
    tests="tests/systems/azr/azr_test.py",
  ),
  _of(
    "azr | eq. 4 |",
    file="azr_jax/systems/proposer_rewards.py",
    line="return 0.0 if solve_rate in (0.0, 1.0) else 1.0 - solve_rate",
    broken="return 0.0 if solve_rate == 1.0 else 1.0 - solve_rate",
    tests="tests/systems/azr/rewards_test.py",
  ),
  _of(
    "azr | eq. 5 |",
    file="azr_jax/grading/programs.py",
    line="    return futures.done(Outcome.of(key == reference_key))",
    broken="    return futures.done(Outcome.of(str(key) == str(key)))",
    tests="tests/grading/programs_test.py",
  ),
  _of(
    "azr | eq. 6 |",
    file="azr_jax/systems/azr/rewards.py",
    line="  return 1.0 if correct else rules.wrong",
    broken="  return 1.0 if correct else rules.bad_format",
    tests="tests/systems/azr/rewards_test.py",
  ),
  _of(
    "azr | eq. 7 |",
    file="azr_jax/executor/hash_seeds.py",
    line="    HASH_SEEDS[(first + index) % len(HASH_SEEDS)]",
    broken="    HASH_SEEDS[first % len(HASH_SEEDS)]",
    tests="tests/executor/hash_seeds_test.py",
  ),
  _of(
    "azr | eq. 8 |",
    file="azr_jax/learner/advantages.py",
    line="  del lengths\n"
    "  return _standardize_groups(rewards, groups, np.ones_like(rewards))",
    broken="  return _standardize_groups(rewards, groups, lengths * 1.0)",
    tests="tests/learner/advantages_test.py",
  ),
  _of(
    "azr | eq. 9 |",
    "code_interpreter | eq. 4.2 | GRPO",
    file="azr_jax/learner/packing.py",
    line="[1.0 / (len(counts) * max(count, 1)) for count in counts]",
    broken="[1.0 / len(counts) for count in counts]",
    tests="tests/learner/packing_test.py",
  ),
  _of(
    "azr | eq. 9, micro-batches |",
    file="azr_jax/learner/packing.py",
    line="    part = (sequence.group, number // size)",
    broken="    part = (sequence.group, number % size)",
    tests="tests/learner/packing_test.py",
  ),
  _of(
    "azr | eq. 10 |",
    file="azr_jax/learner/advantages.py",
    line='  "reinforce++": reinforce_plus_plus,',
    broken='  "reinforce++": task_relative,',
    tests="tests/learner/advantages_test.py",
  ),
  _of(
    "azr | eq. 11 to 14 |",
    file="azr_jax/systems/azr/extensions/intrinsic.py",
    line='"times_product": lambda r, parts: r * math.prod(parts),',
    broken='"times_product": lambda r, parts: r + math.prod(parts),',
    tests="tests/systems/azr/rewards_test.py",
  ),
  _of(
    "azr | algorithm 1, line 1; section 3.3.1 |",
    "azr | Table 3 | seed batch factor 4",
    file="azr_jax/systems/azr/settings.py",
    line="self.prompts * self.seed_factor",
    broken="self.prompts",
    tests="tests/systems/azr/seeding_test.py",
  ),
  _of(
    "azr | algorithm 1, lines 4 to 7 |",
    file="azr_jax/systems/azr/proposer.py",
    line="(response, induction_inputs)",
    broken="(response, induction_inputs + 1)",
    tests="tests/systems/azr/azr_test.py",
  ),
  _of(
    "azr | algorithm 1, lines 8 to 12 |",
    file="azr_jax/systems/azr/proposer.py",
    line="    counts = [self._references]",
    broken="    counts = [0]",
    tests="tests/systems/azr/seeding_test.py tests/systems/azr/azr_test.py",
  ),
  _of(
    "azr | algorithm 1, lines 13 to 15; section 3.3.2 |",
    file="azr_jax/systems/azr/collector.py",
    line="if self._solves_proposals and",
    broken="if not self._solves_proposals and",
    tests="tests/systems/azr/azr_test.py::"
    "test_current_tasks_are_solved_in_the_same_step",
  ),
  _of(
    "azr | algorithm 1, line 16 |",
    file="azr_jax/systems/azr/collector.py",
    line="proposal.task, self._learnability_samples\n",
    broken="proposal.task, 1\n",
    tests="tests/systems/azr/azr_test.py::"
    "test_half_solved_proposals_earn_learnability",
  ),
  _of(
    "azr | algorithm 1, line 17 |",
    file="azr_jax/trainer/batching.py",
    line="        [t.group_id for t in trajectories],\n        [int(",
    broken="        [0 for t in trajectories],\n        [int(",
    tests="tests/trainer/make_batch_test.py",
  ),
  _of(
    "azr | section 3.3.2 |",
    file="azr_jax/tasks/programs/buffer.py",
    line="    if len(self._entries) > self._cap:",
    broken="    if len(self._entries) > self._cap + 1:",
    tests="tests/tasks/programs/buffer_test.py",
  ),
  _of(
    "azr | section 3.3.3, figures 9 and 13 |",
    file="azr_jax/tasks/programs/validation.py",
    line="    runs=INDEPENDENT_RUNS,\n",
    broken="    runs=1,\n",
    tests="tests/tasks/programs/validation_test.py",
  ),
  _of(
    "azr | section 3.3.3, solving |",
    file="azr_jax/tasks/programs/solving.py",
    line="  num_shown = len(task.inputs) // 2",
    broken="  num_shown = len(task.inputs)",
    tests="tests/systems/azr/azr_test.py::"
    "test_the_solver_never_sees_the_answer "
    "tests/tasks/programs/templates_test.py",
  ),
  _of(
    "azr | section 3.3.4, figures 10 to 12 |",
    file="azr_jax/grading/programs.py",
    line="  correct = output is not None and _has_key(output, reference_key)",
    broken="  correct = output is not None",
    tests="tests/grading/programs_test.py",
  ),
  _of(
    "azr | figure 8 |",
    file="azr_jax/executor/child/forbidden.py",
    line='if star or name == rule or name.startswith(rule + "."):',
    broken="if star or name == rule:",
    tests="tests/executor/forbidden_test.py",
  ),
  _of(
    "azr | Table 3 | max prompt length",
    file="configs/azr.py",
    line="(1024, 2048, 4096, 6144)",
    broken="(1024, 2048, 4096)",
    tests="tests/trainer/configs_test.py::test_paper_values",
  ),
  _of(
    "azr | Table 3 | max response length",
    file="configs/azr.py",
    line="c.rollout.max_tokens = 8096",
    broken="c.rollout.max_tokens = 8192",
    tests="tests/trainer/configs_test.py::test_paper_values",
  ),
  _of(
    "azr | Table 3 | max programs",
    file="configs/azr.py",
    line="max_programs = 16_384",
    broken="max_programs = 16_383",
    tests="tests/trainer/configs_test.py::test_paper_values",
  ),
  _of(
    "azr | Table 3 | batch size 64 x 6",
    file="azr_jax/systems/azr/system.py",
    line="      for _ in range(settings.prompts)\n    ]",
    broken="      for _ in range(1)\n    ]",
    tests="tests/systems/azr/azr_test.py::"
    "test_a_step_gives_b_trajectories_per_task_and_role",
  ),
  _of(
    "azr | Table 3 | AdamW",
    file="azr_jax/learner/optimizer.py",
    line="optax.chain(optax.clip_by_global_norm(grad_clip), optimizer)",
    broken="optimizer",
    tests="tests/learner/update_test.py::"
    "test_a_paper_s_optimizer_is_adamw_of_the_paper_s_values",
  ),
  _of(
    "azr | Table 3 | 500 steps",
    file="configs/azr.py",
    line="c.train.steps = 500",
    broken="c.train.steps = 501",
    tests="tests/trainer/configs_test.py::test_paper_values",
  ),
  _of(
    "azr | Table 3 | no KL",
    "code_interpreter | eq. 4.1 |",
    "countdown | section 4.1 | rate 1e-5, KL 1e-3",
    "countdown | section 4.2 | rate 5e-6, KL 5e-3",
    file="azr_jax/learner/objective.py",
    line="      loss = loss + kl_coef * jnp.sum(",
    broken="      loss = loss - kl_coef * jnp.sum(",
    tests="tests/learner/update_test.py::"
    "test_kl_is_zero_at_the_reference_and_pulls_towards_it",
  ),
  _of(
    "azr | Table 3 | entropy coefficient",
    "countdown | section 4.1 | entropy coefficient",
    file="azr_jax/learner/objective.py",
    line="    loss = weighted - entropy_coef * bonus",
    broken="    loss = weighted + entropy_coef * bonus",
    tests="tests/learner/update_test.py",
  ),
  _of(
    "azr | Table 3 | PPO epochs 1",
    file="azr_jax/systems/azr/collector.py",
    line="await self._sample(AZRCall.SOLVE, episode, task, 1)",
    broken="(await self._sample(AZRCall.SOLVE, episode, task, 2))[:1]",
    tests="tests/systems/azr/azr_test.py",
  ),
  _of(
    "azr | Table 3 | temperature 1.0",
    "countdown | section 4.1 | temperature 1.0",
    "orz | appendix B | 128 prompts",
    file="azr_jax/rollout/token_sampling.py",
    line="logits / jnp.where(is_greedy, 1.0, temperature[:, None])",
    broken="logits * jnp.where(is_greedy, 1.0, temperature[:, None])",
    tests="tests/rollout/token_sampling_test.py",
  ),
  _of(
    "azr | Table 3 | K = 6",
    file="configs/azr.py",
    line="c.azr.references = 6",
    broken="c.azr.references = 5",
    tests="tests/trainer/configs_test.py::test_paper_values",
  ),
  _of(
    "azr | section 4.1, figure 30, Table 5 |",
    file="configs/azr.py",
    line='"hf:Qwen/Qwen2.5-Coder-3B"',
    broken='"hf:Qwen/Qwen2.5-3B"',
    tests="tests/trainer/configs_test.py::"
    "test_every_model_of_azr_s_paper_has_a_variant",
  ),
  _value(
    "azr | figure 33 |",
    file="configs/azr.py",
    line="  c.rollout.decode_chunk = 128\n",
    broken='  c.rollout.stop_strings = ("</answer>",)\n',
  ),
  _of(
    "azr | section 4.1 | Llama-3.1",
    file="azr_jax/models/tokenizers.py",
    line="return ids if has_bos else self._bos_ids + ids",
    broken="return ids",
    tests="tests/models/bos_test.py",
  ),
  _of(
    "azr | figures 33 to 39 |",
    file="azr_jax/tasks/programs/prompts.py",
    line='{", ".join(FORBIDDEN_MODULES)}."""',
    broken='{", ".join(FORBIDDEN_MODULES[1:])}."""',
    tests="tests/tasks/programs/parsing_test.py",
  ),
  _of(
    "azr | section 4.1, evaluation |",
    "azr | Table 1, Table 5 |",
    file="azr_jax/evals/registry.py",
    line='    means["average/overall"] = sum(means.values()) / 2',
    broken='    means["average/overall"] = max(means.values())',
    tests="tests/evals/registry_test.py",
  ),
  _of(
    "azr | Table 1, Table 5, checkpoint |",
    file="azr_jax/trainer/checkpoint_scores.py",
    line="selection_score(self.select, self.validation[step])[0]",
    broken="-selection_score(self.select, self.validation[step])[0]",
    tests="tests/trainer/checkpoint_scores_test.py::"
    "test_one_set_chooses_and_another_reports",
  ),
  _of(
    "azr | C.1, figures 28 to 31 |",
    file="azr_jax/trainer/checkpoint_scores.py",
    line="found.scores, model_spec, steps, score)",
    broken="found.scores, model_spec, steps[-1:], score)",
    tests="tests/trainer/checkpoint_scores_test.py::"
    "test_without_a_choice_every_checkpoint_is_reported",
  ),
  _of(
    "azr | Table 2 |",
    file="experiments/azr_ablations/experiment.toml",
    line='set = { "azr.roles" = ["solve"] }',
    broken='set = { "azr.roles" = ["propose", "solve"] }',
    tests="tests/lab/experiments/plans_test.py",
  ),
  _of(
    "azr | C.2, figures 6 and 14 |",
    file="configs/azr.py",
    line='"cruxeval_i,cruxeval_o,livecodebench_execution"',
    broken='"cruxeval_i,cruxeval_o"',
    tests="tests/evals/program_tasks_test.py::"
    "test_the_paper_s_evaluation_is_that_of_figure_14",
  ),
  _of(
    "azr | C.2 | they are asked",
    file="azr_jax/evals/program_tasks.py",
    line="    return solver_prompt(*task_of(item))",
    broken="    return item.question",
    tests="tests/evals/program_tasks_test.py",
  ),
  _of(
    "azr | section 4.1 | greedy, one response",
    file="azr_jax/rollout/token_sampling.py",
    line="  weights = jnp.where(is_greedy & (weights < 1), 0.0, weights)\n",
    broken="",
    tests="tests/rollout/token_sampling_test.py",
  ),
  _of(
    "azr | C.3, figures 15 to 17 |",
    file="azr_jax/systems/azr/metrics.py",
    line='collect.solve_metrics(members, "/".join((NAME, *group)))',
    broken='collect.solve_metrics(trajectories, "/".join((NAME, *group)))',
    tests="tests/systems/azr/azr_test.py",
  ),
  _of(
    "azr | C.4, C.5, figure 27 |",
    file="azr_jax/systems/azr/program_metrics.py",
    line="    return 1.0 - float(np.mean([counts[_key(a)] / total",
    broken="    return float(np.mean([counts[_key(a)] / total",
    tests="tests/systems/azr/program_metrics_test.py",
  ),
  _of(
    "azr | D.1 |",
    file="azr_jax/systems/azr/proposer.py",
    line="validation.submit_error_triplet(executor, code, argument_text)",
    broken="validation.submit_triplet(executor, code, argument_text)",
    tests="tests/systems/azr/appendix_test.py",
  ),
  _of(
    "azr | D.2 |",
    file="azr_jax/systems/azr/extensions/composite.py",
    line='    if node.id == "f":',
    broken='    if node.id == "g":',
    tests="tests/systems/azr/composite_test.py",
  ),
  _of(
    "azr | D.3 |",
    file="azr_jax/tasks/programs/buffer.py",
    line="    weights = np.arange(1.0, len(self._entries) + 1)",
    broken="    weights = np.ones(len(self._entries))",
    tests="tests/tasks/programs/buffer_test.py",
  ),
  _of(
    "azr | D.4 |",
    file="azr_jax/systems/azr/trajectories.py",
    line="    if is_learnable or not extra.only_learnable:",
    broken="    if is_learnable:",
    tests="tests/systems/azr/azr_test.py::test_intrinsic_rewards_where_eq_4_is_0",
  ),
  _of(
    "azr | D.5 |",
    file="azr_jax/systems/azr/proposer.py",
    line="  code = rewriting.strip(code, strip)\n",
    broken="",
    tests="tests/systems/azr/azr_test.py::"
    "test_programs_are_stripped_before_they_become_tasks",
  ),
  _value(
    "azr | figures 34 to 36 |",
    file="azr_jax/executor/profiles.py",
    line='"azr": {"timeout_s": 10.0}',
    broken='"azr": {"timeout_s": 5.0}',
  ),
  _value(
    "azr | published code |",
    file="azr_jax/run/settings.py",
    line="save_every: int = setting(10",
    broken="save_every: int = setting(20",
  ),
)
_R1_CI = (
  _of(
    "code_interpreter | section 3, Table 1 |",
    file="azr_jax/tools/code_blocks.py",
    line="  return tags.last(tags.enclosed(text, *_ANSWER))",
    broken="  return next(tags.enclosed(text, *_ANSWER), None)",
    tests="tests/tools/code_blocks_test.py",
  ),
  _of(
    "code_interpreter | section 3, figure 2 |",
    file="azr_jax/tools/python_tool.py",
    line="    return [*self._prefix, *body, *self._suffix]",
    broken="    return [*self._prefix, *self._suffix]",
    tests="tests/tools/python_tool_test.py",
  ),
  _of(
    "code_interpreter | eq. 4.2 | tokens of the tool",
    file="azr_jax/rollout/tokens.py",
    line="    np.zeros(len(ids), bool),",
    broken="    np.ones(len(ids), bool),",
    tests="tests/rollout/tool_runner_test.py::"
    "test_the_loss_mask_tells_responses_from_tool_outputs "
    "tests/rollout/sequence_test.py",
  ),
  _of(
    "code_interpreter | eq. 4.3 to 4.5, appendix C |",
    "code_interpreter | eq. 4.6 |",
    file="azr_jax/curricula/improvement_potential.py",
    line="    percent = 400 * correct * (samples - correct)",
    broken="    percent = 100 * correct * samples",
    tests="tests/curricula/potential_test.py",
  ),
  _of(
    "code_interpreter | section 4.1 | 1 if right",
    file="azr_jax/systems/code_interpreter/rewards.py",
    line='"turns": -turn_penalty if len(responses) > max_turns else 0.0',
    broken='"turns": -turn_penalty if len(responses) >= max_turns else 0.0',
    tests="tests/systems/code_interpreter/code_interpreter_test.py::"
    "test_the_parts_of_the_reward",
  ),
  _value(
    "code_interpreter | section 4.1, sandbox | 8 calls",
    file="azr_jax/executor/profiles.py",
    line='"timeout_s": 60.0,  # R1-CI',
    broken='"timeout_s": 30.0,  # R1-CI',
  ),
  _of(
    "code_interpreter | section 4.1, sandbox | five nodes",
    file="azr_jax/executor/pool/cluster.py",
    line='if node["Alive"] and node["Resources"]',
    broken='if node["Alive"] and not node["Resources"]',
    tests="tests/executor/cluster_test.py::"
    "test_every_node_has_an_actor_with_every_sandbox_layer",
  ),
  _value(
    "code_interpreter | sandbox, not named |",
    file="azr_jax/executor/profiles.py",
    line='"libraries": scripts.LIBRARIES,',
    broken='"libraries": ("numpy",),',
  ),
  _value(
    "code_interpreter | section 4, GRPO | rate 1e-6",
    file="configs/code_interpreter.py",
    line="c.code_interpreter.prompts = 128",
    broken="c.code_interpreter.prompts = 64",
  ),
  _of(
    "code_interpreter | section 4, GRPO, not named |",
    file="azr_jax/learner/kl_estimators.py",
    line="  return jnp.exp(-log_ratio) - 1.0 + log_ratio",
    broken="  return jnp.exp(log_ratio) - 1.0 - log_ratio",
    tests="tests/learner/kl_estimators_test.py",
  ),
  _of(
    "code_interpreter | section 4, SFT | 3 epochs",
    file="azr_jax/corpora/demonstrations.py",
    line="sorted(indices[:per_task])",
    broken="sorted(indices)",
    tests="tests/corpora/demonstrations_test.py",
  ),
  _of(
    "code_interpreter | section 4, SFT | wrong",
    file="azr_jax/lab/data/rejection_sampling.py",
    line="    turns = agents.read_conversation(text) if is_correct else []",
    broken="    turns = agents.read_conversation(text)",
    tests="tests/lab/data/question_evals_test.py::"
    "test_a_model_learns_from_its_own_correct_answers",
  ),
  _of(
    "code_interpreter | section 4, SFT | GPT-4o",
    file="azr_jax/lab/data/teacher.py",
    line="        text = text[: block.end]\n",
    broken="        pass\n",
    tests="tests/lab/data/teacher_test.py::"
    "test_scripts_run_and_what_the_teacher_invents_is_dropped",
  ),
  _of(
    "code_interpreter | section 4 | 107 tasks",
    file="azr_jax/assets/question_tasks.tsv",
    line="symbench/boxlift\ttest\t",
    broken="symbench/boxlift\ttrain\t",
    tests="tests/tasks/questions/catalogue_test.py",
  ),
  _of(
    "code_interpreter | section 4 | Qwen2.5-Instruct",
    file="configs/code_interpreter.py",
    line='SIZES = ("3b", "7b", "14b")',
    broken='SIZES = ("3b", "7b")',
    tests="tests/trainer/configs_test.py",
  ),
  _of(
    "code_interpreter | Table 2 | four agents",
    file="azr_jax/systems/code_interpreter/agents.py",
    line="  answer = code_blocks.find_answer(output)",
    broken="  answer = output",
    tests="tests/systems/code_interpreter/agents_test.py::"
    "test_all_code_answers_with_what_its_script_prints",
  ),
  _of(
    "code_interpreter | Table 2, CodeSteer |",
    "evaluate | R1-CI, Table 2, CodeSteer |",
    file="azr_jax/systems/code_interpreter/codesteer.py",
    line="        self._check_tries,\n",
    broken="        1,\n",
    tests="tests/systems/code_interpreter/agents_test.py::"
    "test_codesteer_checks_by_three_scripts_of_five_responses",
  ),
  _of(
    "code_interpreter | section 4.3 |",
    file="azr_jax/curricula/improvement_potential.py",
    line="  return min(1 + (step - 1) // stage_steps, STAGES)",
    broken="  return min(1 + step // stage_steps, STAGES)",
    tests="tests/curricula/potential_test.py",
  ),
  _of(
    "code_interpreter | Table 3 |",
    file="azr_jax/evals/question_table.py",
    line="float(np.mean([values.mean() for values in by_task]))",
    broken="float(np.mean(np.concatenate(list(by_task))))",
    tests="tests/evals/question_table_test.py",
  ),
  _of(
    "code_interpreter | section 4, evaluation | temperature 0.6; GPT-4o",
    file="azr_jax/grading/bbh.py",
    line='  answer = answer.removesuffix(".").strip()\n',
    broken="",
    tests="tests/grading/bbh_grader_test.py",
  ),
  _value(
    "code_interpreter | section 4, evaluation | the same during",
    file="configs/code_interpreter.py",
    line="  c.evaluation.temperature = 0.6  # paper: 0.6\n",
    broken="",
  ),
  _of(
    "code_interpreter | Table 4 |",
    file="azr_jax/evals/multiple_choice.py",
    line='"answer": LETTERS[order.index(0)],',
    broken='"answer": LETTERS[0],',
    tests="tests/evals/multiple_choice_test.py",
  ),
  _of(
    "code_interpreter | Table 5 |",
    file="azr_jax/models/load.py",
    line='  if kind == "hf" and name:',
    broken='  if kind == "hub" and name:',
    tests="tests/models/load_test.py",
  ),
  _of(
    "code_interpreter | Table 6 |",
    file="azr_jax/assets/question_tasks.tsv",
    line="execution\tmath spatial logical\nsymbench/blocksworld",
    broken="execution\tmath spatial\nsymbench/blocksworld",
    tests="tests/tasks/questions/catalogue_test.py",
  ),
  _of(
    "code_interpreter | figure 3 (c) |",
    "code_interpreter | figure 3 (d) |",
    file="azr_jax/tasks/questions/sources.py",
    line="for question in questions if question.task in kept]",
    broken="for question in questions]",
    tests="tests/systems/code_interpreter/code_interpreter_test.py::"
    "test_a_run_trains_on_some_tasks_or_on_one_group",
  ),
  _of(
    "code_interpreter | figure 10 |",
    file="configs/code_interpreter.py",
    line='    "train.init_from_run": "code_interpreter_run",\n',
    broken="",
    tests="tests/trainer/configs_test.py::test_figures_of_r1_ci",
  ),
  _of(
    "code_interpreter | figure 13 |",
    file="azr_jax/lab/data/question_splits.py",
    line="    if name in chosen or name not in others\n",
    broken="",
    tests="tests/lab/data/question_splits_test.py::"
    "test_a_collection_can_be_held_out",
  ),
  _of(
    "code_interpreter | figure 14 |",
    file="azr_jax/curricula/improvement_potential.py",
    line="    size = min(map(len, of_task))",
    broken="    size = max(map(len, of_task))",
    tests="tests/curricula/potential_test.py",
  ),
  _of(
    "code_interpreter | figure 15 |",
    file="configs/code_interpreter.py",
    line="    start = UNTRAINED[variant] if is_cold else",
    broken="    start = UNTRAINED[variant] if False else",
    tests="tests/trainer/configs_test.py::test_figures_of_r1_ci",
  ),
  _of(
    "code_interpreter | figure 6 |",
    file="azr_jax/systems/code_interpreter/self_checks.py",
    line="any(text in seen for text in _literals(nodes)) and _judges(nodes)",
    broken="any(text in seen for text in _literals(nodes))",
    tests="tests/systems/code_interpreter/self_checks_test.py",
  ),
  _of(
    "code_interpreter | figure 7 |",
    file="azr_jax/learner/advantages.py",
    line="  del groups, lengths\n"
    "  return _standardize(rewards, np.ones_like(rewards))",
    broken="  return _standardize(rewards, lengths * 1.0)",
    tests="tests/learner/advantages_test.py",
  ),
  _of(
    "code_interpreter | figure 8 |",
    file="azr_jax/curricula/improvement_potential.py",
    line='_ONE_GROUP_PER_STAGE = ("potential_alone", "online_unmerge")',
    broken='_ONE_GROUP_PER_STAGE = ("potential_alone",)',
    tests="tests/curricula/potential_test.py "
    "tests/systems/code_interpreter/code_interpreter_test.py",
  ),
  _of(
    "code_interpreter | figure 9 |",
    file="azr_jax/corpora/demonstrations.py",
    line="multi_turn_weight if len(t.turns) > 1 else 1.0",
    broken="1.0",
    tests="tests/corpora/demonstrations_test.py",
  ),
)
_ORZ = (
  _of(
    "orz | eq. 1 |",
    file="azr_jax/learner/gae.py",
    line="    advantage_B = delta_B + gamma * gae_lambda * next_advantage_B",
    broken="    advantage_B = delta_B + gae_lambda * next_advantage_B",
    tests="tests/learner/critic_test.py::test_gae_equals_the_definition",
  ),
  _of(
    "orz | eq. 2 |",
    file="azr_jax/learner/packing.py",
    line="    return [1.0 / len(counts) for _ in counts]",
    broken="    return [1.0 / sum(counts) for _ in counts]",
    tests="tests/learner/packing_test.py",
  ),
  _of(
    "orz | eq. 3, eq. 5 |",
    "orz | eq. 9 |",
    file="azr_jax/learner/critic_update.py",
    line="  return 0.5 * error\n",
    broken="  return error\n",
    tests="tests/learner/critic_test.py::"
    "test_value_loss_takes_the_larger_of_both_errors",
  ),
  _of(
    "orz | eq. 4, eq. 6 to 8 |",
    "orz | figure 3, left",
    file="azr_jax/learner/gae.py",
    line="jnp.where(is_last_B, reward_B, 0.0) + gamma * next_value_B - cost_B",
    broken="jnp.where(is_last_B, reward_B, 0.0) - value_B",
    tests="tests/learner/critic_test.py::"
    "test_at_one_and_one_it_is_reward_minus_value "
    "tests/learner/critic_test.py::test_gae_equals_the_definition",
  ),
  _of(
    "orz | figure 3, right |",
    file="azr_jax/tasks/mathematics/problem.py",
    line="  return extraction.last_boxed(solution)",
    broken="  return solution",
    tests="tests/tasks/mathematics/problems_test.py",
  ),
  _of(
    "orz | figure 8, C.2 |",
    file="azr_jax/tasks/mathematics/sources.py",
    line="    if language == ENGLISH and parsed.has_chinese:",
    broken="    if parsed.has_chinese:",
    tests="tests/tasks/mathematics/problems_test.py::"
    "test_problems_in_english_alone",
  ),
  _of(
    "orz | algorithm 1, lines 1 to 4 |",
    file="azr_jax/learner/value_model.py",
    line="  params = jax.tree.map(jnp.copy, shared)",
    broken="  params = jax.tree.map(jnp.zeros_like, shared)",
    tests="tests/learner/critic_test.py::"
    "test_the_critic_starts_as_the_policy_with_a_new_head",
  ),
  _of(
    "orz | algorithm 1, lines 6 to 15 |",
    file="azr_jax/learner/critic.py",
    line="    return Estimates(advantages, old_values, returns), metrics\n",
    broken="    return Estimates(returns, old_values, returns), metrics\n",
    tests="tests/learner/critic_test.py::"
    "test_the_policy_learns_from_normalized_advantages",
  ),
  _of(
    "orz | algorithm 1, lines 17 to 22 |",
    file="azr_jax/learner/critic_update.py",
    line="    steps = jnp.minimum(num_minibatches, count)",
    broken="    steps = jnp.minimum(1, count)",
    tests="tests/learner/critic_test.py::"
    "test_the_critic_learns_in_parts_as_a_plain_loop_does",
  ),
  _of(
    "orz | algorithm 1, lines 23 to 29 |",
    file="azr_jax/learner/actor_critic.py",
    line="= policy_pass(policy, policy_batch, fixed)",
    broken="= policy_pass(policy, batch, fixed)",
    tests="tests/learner/critic_test.py::"
    "test_the_policy_learns_from_normalized_advantages",
  ),
  _of(
    "orz | section 2.3, reward | 1 if",
    file="azr_jax/grading/mathematics/reward.py",
    line='  if truncated_grade == INCORRECT and finish_reason != "stop":',
    broken='  if finish_reason != "stop":',
    tests="tests/systems/orz_test.py::"
    "test_a_truncated_answer_is_incorrect_or_graded",
  ),
  _of(
    "orz | section 2.3, reward | how answers",
    file="azr_jax/grading/mathematics/grader.py",
    line="same(lambda question: question in true)",
    broken="same(lambda question: question not in true)",
    tests="tests/grading/mathematics/math_grader_test.py",
  ),
  _of(
    "orz | section 2.3, data | 129k",
    file="azr_jax/tasks/mathematics/sources.py",
    line="    problems.setdefault(parsed.question, parsed)",
    broken="    problems[parsed.question] = parsed",
    tests="tests/tasks/mathematics/problems_test.py",
  ),
  _of(
    "orz | section 2.3, data | problems with extreme",
    "orz | appendix B, annealing |",
    file="azr_jax/lab/data/select_problems.py",
    line="if min_rate <= rate <= max_rate]",
    broken="if min_rate <= rate]",
    tests="tests/lab/data/select_problems_test.py",
  ),
  _of(
    "orz | Table 5 |",
    file="azr_jax/tasks/mathematics/prompts.py",
    line='  "Assistant: <think>"\n',
    broken='  "Assistant:"\n',
    tests="tests/tasks/mathematics/problems_test.py::"
    "test_full_prompts_ask_for_a_box_inside_answer_tags",
  ),
  _of(
    "orz | appendix B | AdamW",
    file="configs/orz.py",
    line="    optimizer.b2 = 0.95\n",
    broken="    optimizer.b2 = 0.999\n",
    tests="tests/learner/update_test.py::"
    "test_a_paper_s_optimizer_is_adamw_of_the_paper_s_values",
  ),
  _of(
    "orz | appendix B | rates 1e-6",
    file="azr_jax/learner/optimizer.py",
    line="return optax.linear_schedule(start, peak, max(warmup_steps, 1))",
    broken="return optax.constant_schedule(peak)",
    tests="tests/learner/update_test.py::"
    "test_a_paper_s_optimizer_is_adamw_of_the_paper_s_values",
  ),
  _of(
    "orz | appendix B | value head",
    file="azr_jax/learner/value_model.py",
    line="    limit = 5.0**0.5\n",
    broken="    limit = 5.0\n",
    tests="tests/learner/critic_test.py::"
    "test_the_critic_starts_as_the_policy_with_a_new_head",
  ),
  _of(
    "orz | appendix B, not named | gradient clip",
    file="configs/orz.py",
    line="    optimizer.grad_clip = 0.0\n",
    broken="",
    tests="tests/learner/update_test.py::"
    "test_a_paper_s_optimizer_is_adamw_of_the_paper_s_values",
  ),
  _of(
    "orz | appendix B | sample packing",
    file="azr_jax/learner/packing.py",
    line='    "segment_ids": np.full(length, segment),',
    broken='    "segment_ids": np.full(length, 1),',
    tests="tests/learner/packing_test.py",
  ),
  _of(
    "orz | appendix B, not named | lengths",
    file="configs/orz.py",
    line="  c.rollout.max_tokens = 8000",
    broken="  c.rollout.max_tokens = 8192",
    tests="tests/systems/orz_test.py::"
    "test_average16_has_the_rule_of_the_reward_by_preset",
  ),
  _of(
    "orz | appendix B | advantages normalized",
    file="azr_jax/learner/critic.py",
    line="  scaled = (advantages - mean) / jnp.sqrt(",
    broken="  scaled = advantages / jnp.sqrt(",
    tests="tests/learner/critic_test.py::"
    "test_the_policy_learns_from_normalized_advantages",
  ),
  _of(
    "orz | appendix B, distilled 14B |",
    file="configs/orz.py",
    line="    c.train.steps = 300\n",
    broken="",
    tests="tests/trainer/configs_test.py::test_stages_and_sizes_of_orz",
  ),
  _of(
    "orz | section 2.2, figures 5 and 7 |",
    file="azr_jax/learner/advantages.py",
    line='  "grpo": task_relative,  # GRPO',
    broken='  "grpo": minus_group_mean,  # GRPO',
    tests="tests/learner/advantages_test.py",
  ),
  _of(
    "orz | figure 4 |",
    file="azr_jax/systems/text_metrics.py",
    line='("however", re.compile(r"however,"))',
    broken='("however", re.compile(r"however;"))',
    tests="tests/systems/text_metrics_test.py",
  ),
  _of(
    "orz | Table 1, Table 3, Table 4, figure 6 |",
    "evaluate | ORZ, section 2.3 |",
    file="configs/evaluate.py",
    line='  c.evaluate.mathematics.answer = "reward"\n',
    broken="",
    tests="tests/systems/orz_test.py::"
    "test_average16_has_the_rule_of_the_reward_by_preset",
  ),
  _value(
    "orz | Table 1, figure 1 |",
    file="configs/orz.py",
    line="  c.evaluation.samples = 16\n",
    broken="",
  ),
  _of(
    "orz | Table 2 |",
    file="azr_jax/evals/multiple_choice.py",
    line="LETTERS[answer] if isinstance(answer, int) else",
    broken="LETTERS[answer - 1] if isinstance(answer, int) else",
    tests="tests/evals/multiple_choice_test.py",
  ),
  _of(
    "orz | section 1, release |",
    file="azr_jax/learner/critic_files.py",
    line="      return reader.read(name, whole)",
    broken="      return -reader.read(name, whole)",
    tests="tests/learner/critic_files_test.py",
  ),
  _of(
    "orz | section 3.2 |",
    file="configs/orz.py",
    line='SIZES = ("0.5b", "1.5b", "7b", "32b")',
    broken='SIZES = ("0.5b", "7b", "32b")',
    tests="tests/trainer/configs_test.py::test_stages_and_sizes_of_orz",
  ),
)
_COUNTDOWN = (
  _of(
    "countdown | eq. 1 |",
    file="azr_jax/learner/advantages.py",
    line="(group_rewards.sum() - group_rewards) / (len(members) - 1)",
    broken="(group_rewards.sum() - group_rewards) / len(members)",
    tests="tests/learner/advantages_test.py",
  ),
  _of(
    "countdown | section 3 |",
    "countdown | section 4.2 | `iw_clip_max`",
    file="azr_jax/learner/surrogate_losses.py",
    line="jnp.exp(jnp.minimum(log_weights, jnp.log(iw_clip_max)))",
    broken="jnp.exp(log_weights)",
    tests="tests/learner/policy_losses_test.py",
  ),
  _of(
    "countdown | section 3.1 | exact solver",
    file="azr_jax/tasks/countdown/difficulty.py",
    line="    + 0.20 * ~analysis.plus_minus",
    broken="    + 0.20 * analysis.plus_minus",
    tests="tests/tasks/countdown/solver_test.py",
  ),
  _of(
    "countdown | section 3.1 | buckets",
    file="azr_jax/tasks/countdown/difficulty.py",
    line="np.where(scores >= high, 2, 1)",
    broken="np.where(scores > high, 2, 1)",
    tests="tests/tasks/countdown/solver_test.py",
  ),
  _of(
    "countdown | section 3.1, d_SFT |",
    file="azr_jax/systems/countdown/sources.py",
    line="np.array([1.0 - rates[puzzle] for puzzle in known])",
    broken="np.array([rates[puzzle] for puzzle in known])",
    tests="tests/systems/countdown_sources_test.py::"
    "test_buckets_by_the_pass_rate_of_a_model",
  ),
  _of(
    "countdown | section 3.1, check |",
    file="azr_jax/evals/countdown.py",
    line="float(correct[buckets == index].mean())",
    broken="float(correct.mean())",
    tests="tests/evals/countdown_benchmark_test.py",
  ),
  _of(
    "countdown | Table 1 |",
    file="azr_jax/curricula/mixture.py",
    line="(0.35, 0.60, 0.05)",
    broken="(0.35, 0.55, 0.10)",
    tests="tests/curricula/curricula_test.py",
  ),
  _of(
    "countdown | eq. 2 |",
    file="azr_jax/curricula/adaptive.py",
    line="collections.deque(maxlen=window)",
    broken="collections.deque()",
    tests="tests/curricula/curricula_test.py",
  ),
  _of(
    "countdown | eq. 3 |",
    file="azr_jax/curricula/adaptive.py",
    line="    scores = -np.abs(success - self._target) /",
    broken="    scores = np.abs(success - self._target) /",
    tests="tests/curricula/curricula_test.py",
  ),
  _of(
    "countdown | eq. 4 |",
    file="azr_jax/curricula/adaptive.py",
    line="(1 - self._epsilon) * near_target + self._epsilon * uniform",
    broken="near_target",
    tests="tests/curricula/curricula_test.py",
  ),
  _of(
    "countdown | eq. 5 |",
    file="azr_jax/curricula/replay.py",
    line="    return self.mean_pass_rate * (1 - self.mean_pass_rate)",
    broken="    return 1 - self.mean_pass_rate",
    tests="tests/curricula/curricula_test.py",
  ),
  _of(
    "countdown | section 3.2, proposer |",
    "countdown | section 3.2, control |",
    "countdown | Table 4 |",
    file="azr_jax/lab/data/countdown_pool.py",
    line="    if rejection is None and puzzle is not None:",
    broken="    if puzzle is not None:",
    tests="tests/lab/data/countdown_pool_test.py",
  ),
  _of(
    "countdown | section 3.2, mix |",
    file="azr_jax/curricula/mixed.py",
    line="int(round(self._second_fraction * count))",
    broken="int(round(0.25 * count))",
    tests="tests/systems/countdown_test.py::"
    "test_mixing_draws_half_from_the_second_source",
  ),
  _of(
    "countdown | section 4.1 | weight decay",
    file="configs/countdown.py",
    line="  c.optimizer.grad_clip = 0.0  # section 4.1: no clipping\n",
    broken="",
    tests="tests/learner/update_test.py::"
    "test_a_paper_s_optimizer_is_adamw_of_the_paper_s_values",
  ),
  _of(
    "countdown | section 4.1, verifier |",
    file="azr_jax/grading/countdown.py",
    line="  if sorted(constants) != sorted(puzzle.numbers):",
    broken="  if not {*constants} <= {*puzzle.numbers}:",
    tests="tests/grading/countdown/verifier_test.py",
  ),
  _of(
    "countdown | section 4.1, data |",
    file="azr_jax/tasks/countdown/generator.py",
    line="if is_test(p) == test]",
    broken="if p]",
    tests="tests/tasks/countdown/puzzles_test.py",
  ),
  _of(
    "countdown | section 4.1, evaluation | 50 puzzles",
    "evaluate | Countdown, section 4.1 | 16 responses",
    file="azr_jax/evals/pass_at_k.py",
    line="[:, :k].any(axis=1)",
    broken="[:, -k:].any(axis=1)",
    tests="tests/evals/pass_at_k_test.py",
  ),
  _value(
    "countdown | section 4.1, evaluation | the same during",
    file="configs/countdown.py",
    line="  c.evaluation.samples = 16  # section 4.1\n",
    broken="",
  ),
  _of(
    "countdown | Table 2 |",
    file="configs/countdown.py",
    line='  if kind == "_static":',
    broken='  if kind == "_never":',
    tests="tests/trainer/configs_test.py::test_variants_of_countdown_s_tables",
  ),
  _of(
    "countdown | Table 3 |",
    file="configs/countdown.py",
    line='    if kind.endswith("mix"):',
    broken='    if kind.endswith("_never"):',
    tests="tests/trainer/configs_test.py::test_variants_of_countdown_s_tables",
  ),
  _of(
    "countdown | section 4.2, SFT; not in the paper |",
    "countdown | section 4.2 | a start that was trained",
    file="azr_jax/corpora/countdown.py",
    line="      style_index = rng.choice(len(weights), p=weights)",
    broken="      style_index = 5",
    tests="tests/corpora/countdown_corpus_test.py",
  ),
  _value(
    "countdown | section 4.1 | 100 updates",
    file="configs/countdown.py",
    line="c.countdown.prompts = 128",
    broken="c.countdown.prompts = 64",
  ),
  _value(
    "countdown | section 4.1 | the start",
    file="configs/countdown.py",
    line='  c.model.source = "hf:asingh15/qwen-sft-countdown-defaultproj"\n',
    broken='  c.model.source = "hf:Qwen/Qwen2.5-0.5B"\n',
  ),
  _value(
    "countdown | section 4.2 | 100 updates",
    file="configs/countdown.py",
    line="  c.countdown.group_size = 16\n",
    broken="",
  ),
  _of(
    "countdown | section 3.2, joint |",
    file="configs/countdown.py",
    line="c.countdown.mix.bucket_weights = (0.10, 0.40, 0.50)",
    broken="c.countdown.mix.bucket_weights = (0.10, 0.50, 0.40)",
    tests="tests/trainer/configs_test.py::test_variants_of_countdown_s_tables",
  ),
  _of(
    "countdown | section 4.1, replay |",
    file="azr_jax/curricula/replay.py",
    line="    if step <= self._warmup_steps:",
    broken="    if step < self._warmup_steps:",
    tests="tests/curricula/curricula_test.py::"
    "test_replay_respects_range_warm_up_bucket_and_fraction",
  ),
  _of(
    "countdown | section 4.1, conservative replay |",
    file="azr_jax/curricula/replay.py",
    line="record.replays < self._max_replays",
    broken="record.replays <= self._max_replays",
    tests="tests/curricula/curricula_test.py::"
    "test_replay_has_a_maximum_per_prompt_and_a_moving_mean",
  ),
)
_SAMPLING = (
  _of(
    "evaluate | AZR, section 4.1 | greedy",
    file="configs/evaluate.py",
    line="  c.rollout.temperature = 0.0  # greedy\n  c.rollout.prompt_buckets",
    broken="  c.rollout.prompt_buckets",
    tests=f"tests/papers_test.py::{VALUES}[evaluate]",
  ),
  _of(
    "evaluate | AZR, not named | lengths",
    file="configs/evaluate.py",
    line='"all=8096,math=16000"',
    broken='"all=8000,math=16000"',
    tests="tests/trainer/scoring_test.py"
    "::test_each_benchmark_has_its_longest_response",
  ),
  _of(
    "evaluate | AZR, section 4.1 | LiveCodeBench",
    file="azr_jax/evals/livecodebench_files.py",
    line="FILES[:number] for number in",
    broken="FILES[: number + 1] for number in",
    tests="tests/evals/livecodebench_test.py::test_a_release_is_its_first_files",
  ),
  _of(
    "evaluate | LiveCodeBench | 6 s",
    file="azr_jax/executor/profiles.py",
    line='"timeout_s": 6.0,  # LiveCodeBench',
    broken='"timeout_s": 10.0,  # LiveCodeBench',
    tests="tests/evals/livecodebench_test.py::"
    "test_the_variants_for_public_benchmarks_have_its_limits",
  ),
  _value(
    "evaluate | ORZ, Table 4, figure 6 |",
    file="configs/evaluate.py",
    line="  c.evaluate.samples = 16  # ORZ: 16\n",
    broken="",
  ),
  _value(
    "evaluate | Countdown, section 4.1 | 1,024 tokens",
    file="configs/evaluate.py",
    line="  c.rollout.max_tokens = 1024  # paper: 1024\n",
    broken="",
  ),
  _value(
    "evaluate | R1-CI, section 4 |",
    file="configs/evaluate.py",
    line="  c.rollout.slots = 64\n"
    "  c.rollout.temperature = 0.6  # paper: 0.6\n",
    broken="  c.rollout.slots = 64\n",
  ),
  _of(
    "evaluate | R1-CI, section 4.1, sandbox |",
    file="azr_jax/tools/python_tool.py",
    line="    if len(responses) > self._max_calls:",
    broken="    if len(responses) > self._max_calls + 1:",
    tests="tests/tools/python_tool_test.py",
  ),
  _value(
    "propose | Countdown, section 3.2 |",
    file="configs/propose.py",
    line="  c.rollout.top_k = 40  # paper: 40\n",
    broken="",
  ),
)
MUTATIONS = (*_AZR, *_R1_CI, *_ORZ, *_COUNTDOWN, *_SAMPLING)
