"""Buckets for the curriculum tests."""

import numpy as np

from azr_jax.curricula.curriculum import Buckets

NAMES = ("easy", "medium", "hard")


def make_buckets(counts=(10, 20, 30)):
  bucket_of = [b for b, count in enumerate(counts) for _ in range(count)]
  return Buckets(NAMES, bucket_of)


def rng(seed=0):
  return np.random.default_rng(seed)
