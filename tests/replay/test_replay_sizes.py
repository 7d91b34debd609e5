"""The byte planner against sizes that were printed for published systems."""

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("replay_sizes", Path(__file__).parents[2] / "scripts/replay_sizes.py")
sizes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sizes)


@pytest.mark.parametrize("system", sizes.ROWS, ids=lambda system: system.name)
def test_printed_sizes_follow_from_shapes(system):
    assert sizes.from_shapes(system) == pytest.approx(system.printed, rel=0.05)


def test_bytes_of_a_ring_by_hand():
    """One grey frame, action, reward and two flags a step, and a frame and its row for a cut in 32 steps; 8 priorities
    cost 9 numbers, one sum among them."""
    steps, frame = 400_000, 84 * 84
    by_hand = steps * (frame + 4 + 4 + 1 + 1) + steps // 32 * (frame + 1)
    tree = 4 * (400_000 + 50_000 + 6_256 + 784 + 104 + 16 + 8)  # levels of 8, each padded to a multiple
    assert sizes.ROWS[0].ours() == pytest.approx(by_hand + tree, abs=64)


def test_all_fit_on_an_h200():
    assert all(row.ours() < sizes.H200 for row in sizes.ROWS if row.ours)


def test_seed_rl():
    """1e5 trajectories of 120 frames of 84 x 84 bytes are 84.67e9 (Espeholt et al. 2020)."""
    assert sizes.from_shapes(sizes.ROWS[-1]) == 84_672_000_000
