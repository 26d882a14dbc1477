"""Language models that learn to reason from verifiable rewards, on JAX."""
