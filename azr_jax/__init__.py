"""Train language models to reason with verifiable rewards, in JAX."""

__version__ = "0.2.0.dev0"
