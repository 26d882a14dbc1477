"""Environments of several turns, run in processes of their own.

`protocol.py` says what an environment is, `kits.py` finds one by its spec, and
one module for each kit runs that kit's environments as they are: `verifiers`,
`reasoning-gym` and GEM. `server.py` plays episodes in a worker process, and
`client.py` asks it. `tool_environment.py` is the base class of environments
with tools. This package imports no JAX.
"""

from azr_jax.environments.protocol import Turn
from azr_jax.environments.tool_environment import ToolEnvironment

__all__ = ["ToolEnvironment", "Turn"]
