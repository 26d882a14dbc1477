"""Multi-turn environments, run in their own processes.

`protocol.py` defines an environment and `kits.py` finds one by its spec. One
adapter module per framework runs its environments unchanged: `verifiers`,
`reasoning-gym` and GEM. `server.py` runs episodes in a worker process, and
`client.py` calls it. `tool_environment.py` is the base class of environments
with tools. This package does not import JAX.
"""

from azr_jax.environments.protocol import Turn
from azr_jax.environments.tool_environment import ToolEnvironment

__all__ = ["ToolEnvironment", "Turn"]
