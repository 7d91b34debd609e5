"""AlphaStar's league: the opponents of its players, and when a version of a player is kept.

Vinyals et al. 2019, Nature 575, methods and supplementary pseudocode. There are ``N`` players: some that learn, and
versions of them that were kept. For one that learns, ``rate`` ``[N]`` is the probability that it wins against each
player (`opponents.win_rates`). Masks over players are bool ``[N]``. Functions return probabilities of opponents
``[N]``, for `opponents.choose`.
"""

import jax
import jax.numpy as jnp

from purerl.formulas import opponents
from purerl.types import Array, Scalar

PRIORITISED, VERIFYING = 0.5, 0.15
"""Fractions of a main agent's games against all versions, and against those that it may have forgotten how to beat."""
EVEN, STRONG, HOPELESS, BEATEN = 0.5, 0.3, 0.2, 0.7
"""Win rates of a player. Below `EVEN` against a version of its own, a main agent has forgotten how to beat it; below
`STRONG` against a version of a main exploiter, that version is strong; below `HOPELESS` against the main agent, a
main exploiter learns from its versions; above `BEATEN` an exploiter has done its work."""
ENOUGH_GAMES = 30.0
"""The number of decayed games from which a win rate may show that an exploiter has done its work; AlphaStar gives
none."""
RESET = 0.25
"""The probability that a league exploiter begins anew when a version of it is kept; a main exploiter always does."""


def main_agent(rate: Array, kept: Array, own: Array, exploiters: Array, me: int) -> Array:
    """Computes the probabilities ``[N]`` of a main agent's opponents.

    Half of its games are prioritised fictitious self-play against all versions ``kept``. A fraction of 0.15 is against
    versions of its own that it no longer beats and against strong versions of main exploiters, by the same rule. The
    rest is against itself; so is the fraction of 0.15 where there are no such versions.

    Args:
        rate: ``[N]``, its win rates.
        kept: ``[N]`` bool, all versions that were kept.
        own: ``[N]`` bool, versions of its own.
        exploiters: ``[N]`` bool, versions of main exploiters.
        me: Its own number among the players.
    """
    itself = jax.nn.one_hot(me, len(rate))
    missed = (own & (rate < EVEN)) | (exploiters & (rate < STRONG))
    hard = opponents.hard(rate)
    verifying = jnp.where(jnp.any(missed), opponents.shares(hard, missed), itself)
    everyone = opponents.shares(hard, kept)
    return PRIORITISED * everyone + VERIFYING * verifying + (1 - PRIORITISED - VERIFYING) * itself


def main_exploiter(rate: Array, of_main: Array, main: int) -> Array:
    """Computes the probabilities ``[N]`` of a main exploiter's opponents.

    It plays against the player ``main``. While it wins less than 0.2 of these games, it plays half of the time against
    those versions ``of_main`` (bool ``[N]``) that are about as strong as it is, if there are any.
    """
    newest, past = jax.nn.one_hot(main, len(rate)), opponents.shares(opponents.variance(rate), of_main)
    hopeless = (rate[main] < HOPELESS) & jnp.any(of_main)
    return jnp.where(hopeless, (newest + past) / 2, newest)


def league_exploiter(rate: Array, kept: Array) -> Array:
    """Computes the probabilities ``[N]`` of a league exploiter's opponents.

    These are all versions ``kept``; those that are as strong as it is or stronger have equal probabilities.
    """
    return opponents.shares(opponents.capped(rate), kept)


def beats(rate: Array, games: Array, rivals: Array) -> Scalar:
    """Returns whether a player wins more than 0.7 of its games against each of ``rivals``.

    There must be at least one rival, and at least `ENOUGH_GAMES` decayed ``games`` ``[N]`` with each.
    """
    wins = (rate > BEATEN) & (games >= ENOUGH_GAMES)
    return jnp.any(rivals) & jnp.all(wins | ~rivals)
