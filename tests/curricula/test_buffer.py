"""The buffer of levels, against numpy and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.curricula import buffer as buffers
from purerl.formulas.levels import Played

CAPACITY, DRAWS = 16, 100_000


def filled(scores, stamps=(), clock=10):
    """A buffer that holds a level for each of ``scores``: the levels 0, 1, 2, and so on."""
    made = buffers.empty(jnp.arange(CAPACITY))
    size = len(scores)
    stamps = stamps or (clock,) * size
    return made._replace(
        score=made.score.at[:size].set(jnp.array(scores, jnp.float32)),
        best=made.best.at[:size].set(0.0),
        stamp=made.stamp.at[:size].set(jnp.array(stamps, jnp.int32)),
        size=jnp.int32(size),
        clock=jnp.int32(clock),
    )


def came(best, finished=True, value=0.0):
    best = np.asarray(best, np.float32)
    rest = np.zeros_like(best)
    finished = np.broadcast_to(finished, best.shape)
    return Played(finished, best, best, rest, rest, np.broadcast_to(np.float32(value), best.shape), rest)


def gap(of, best):
    return best - of.value


def record(buffer, levels, played, place=None, chance=None):
    """`buffers.record` of levels that are new, if no ``place`` is told; the ``chance`` of each level is its score."""
    levels = jnp.asarray(levels)
    place = jnp.full(levels.shape, CAPACITY) if place is None else jnp.asarray(place)
    return buffers.record(buffer, levels, place, played, gap, buffer.score if chance is None else chance)


@pytest.mark.rest("0.0-1.0")
@pytest.mark.parametrize(("staleness", "temperature"), [(0.0, 1.0), (0.3, 0.3), (1.0, 0.1), (0.5, 2.0)])
def test_draws_are_those_of_numpy(staleness, temperature):
    scores, stamps = [3.0, -1.0, 7.0, 7.5, 0.0, 2.0], [10, 3, 8, 9, 10, 1]
    rank = np.array([3, 6, 2, 1, 5, 4])
    by_rank, age = rank ** (-1 / temperature), 10 - np.array(stamps)
    expected = (1 - staleness) * by_rank / by_rank.sum() + staleness * age / age.sum()
    chance = buffers.chances(filled(scores, stamps), staleness, temperature)
    np.testing.assert_allclose(chance[:6], expected, rtol=1e-5)
    assert not np.any(chance[6:])
    drawn = np.bincount(buffers.choose(chance, jax.random.key(0), DRAWS), minlength=CAPACITY) / DRAWS
    error = np.sqrt(expected * (1 - expected) / DRAWS)
    assert np.all(np.abs(drawn[:6] - expected) <= 4.5 * error + 1e-7) and not drawn[6:].any()


def test_levels_that_are_all_as_old_are_drawn_alike_by_age():
    np.testing.assert_allclose(
        buffers.chances(filled([1.0, 2.0, 3.0]), 1.0, 0.3)[:4], [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-6
    )


@pytest.mark.rest
def test_new_levels_take_empty_places_first():
    after = record(filled([1.0, 2.0]), [50, 51, 52], came([0.5, -3.0, 9.0], [True, True, False]))
    assert after.size == 4 and after.clock == 11
    assert after.levels[:4].tolist() == [0, 1, 50, 51] and after.score[:4].tolist() == [1.0, 2.0, 0.5, -3.0]
    assert after.stamp[:4].tolist() == [10, 10, 11, 11]


def test_a_full_buffer_gives_up_its_least_likely_levels_to_better_ones():
    full = filled([float(i) for i in range(CAPACITY)])
    after = record(full, [50, 51, 52], came([0.5, 1.5, 99.0]))
    # the best takes the place of 0, the next that of 1, and 0.5 is not more than 2
    assert after.levels[:4].tolist() == [52, 51, 2, 3] and after.score[:4].tolist() == [99.0, 1.5, 2.0, 3.0]
    assert after.size == CAPACITY


def test_who_is_least_likely_may_be_young_rather_than_bad():
    full = filled([float(i) for i in range(CAPACITY)])
    chance = jnp.ones(CAPACITY).at[7].set(0.0)
    assert record(full, [50], came([99.0]), chance=chance).levels[7] == 50
    kept = record(full, [50], came([6.5]), chance=chance)  # does not beat the score there, though it does others
    assert kept.levels.tolist() == full.levels.tolist()


def test_a_level_comes_in_once():
    after = record(filled([1.0]), [50, 50, 0, 50], came([2.0, 5.0, 8.0, 3.0]))
    assert after.size == 2 and after.levels[:2].tolist() == [0, 50]
    assert after.score[:2].tolist() == [8.0, 5.0]  # the one that was there already has a new score


def test_levels_replayed_several_times_get_the_mean_score():
    before = filled([1.0, 2.0, 3.0], [4, 5, 6])
    after = record(before, [1, 1, 2], came([4.0, 6.0, 1.0], [True, True, False], value=1.0), place=[1, 1, 2])
    assert after.best[:3].tolist() == [0.0, 6.0, 0.0]
    assert after.score[:3].tolist() == [1.0, 5.0, 3.0]  # 6 - 1 twice; without an episode the score stays
    assert after.stamp[:3].tolist() == [4, 11, 11]


def test_the_best_return_is_never_forgotten():
    once = record(filled([1.0]), [0], came([5.0]), place=[0])
    assert record(once, [0], came([2.0], value=0.5), place=[0]).score[0] == 4.5


@pytest.mark.rest
def test_what_is_not_finite_never_enters():
    after = record(filled([1.0]), [50, 51], came([np.nan, np.inf]))
    assert after.size == 1
    again = record(after, [0], came([np.nan]), place=[0])
    assert again.score[0] == 1.0 and again.best[0] == 0.0
    assert record(again, [0], came([5.0]), place=[0]).score[0] == 5.0  # and a level is not lost by it


def test_more_levels_than_there_are_places():
    after = record(filled([]), np.arange(50, 70), came(np.arange(20.0)))
    assert after.size == CAPACITY and sorted(after.levels.tolist()) == list(range(54, 70))
    np.testing.assert_array_equal(after.levels - 50, after.score)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float16", "float32", "key"])
def test_marks_tell_levels_apart(dtype):
    number = np.arange(256)
    if dtype == "key":
        leaf = jax.vmap(jax.random.key)(number)
    elif dtype == "bool":
        leaf = jnp.asarray((number[:, None] >> np.arange(8)) % 2, bool)
    else:
        leaf = jnp.asarray(number, dtype)
    tree = {"a": leaf, "b": jnp.zeros((256, 2, 2))}
    result = np.asarray(buffers.marks(tree))
    assert len(np.unique(result, axis=0)) == 256
    np.testing.assert_array_equal(result, buffers.marks(tree))
