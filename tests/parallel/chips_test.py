"""TPU links against the figures on their public pages."""

import pytest

from azr_jax.parallel import chips


@pytest.mark.parametrize(
  "name, both_ways", [("v5e", 400e9), ("v5p", 1200e9), ("v6e", 800e9)]
)
def test_one_way_of_the_links_has_half_of_both_ways(name, both_ways):
  assert chips.TPUS[name].link_bandwidth == both_ways / 2


@pytest.mark.parametrize(
  "name, num_chips, all_reduce",
  [("v4", 4096, 1.1e15), ("v5e", 256, 51.2e12), ("v6e", 256, 102.4e12)],
)
def test_a_pod_reduces_at_most_as_fast_as_its_links(
  name, num_chips, all_reduce
):
  per_chip = all_reduce / num_chips
  assert 1 <= chips.TPUS[name].link_bandwidth / per_chip < 1.15


@pytest.mark.parametrize(
  "name, gigahertz", [("v4", 1.05), ("v5e", 1.5), ("v5p", 1.75)]
)
def test_the_clock_follows_from_the_matrix_units(name, gigahertz):
  assert chips.TPUS[name].clock_hz == pytest.approx(gigahertz * 1e9, rel=0.01)
