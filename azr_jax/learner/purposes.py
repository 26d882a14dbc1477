"""Purposes of JAX random keys, folded into the run's seed.

Different purposes draw independent random numbers.
"""

# Rollouts of a step.
SAMPLING = 1
# Evaluations.
EVALUATION = 2
# The tokens that a policy loss selects at random.
SELECTION = 3
# The critic's value head before training.
VALUE_HEAD = 4
