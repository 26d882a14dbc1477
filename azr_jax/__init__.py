"""Language models that learn to reason from verifiable rewards, on JAX."""

__version__ = "0.2.0.dev0"
