"""AlphaStar's league: whom its players meet, and when a version of them is kept (Vinyals et al. 2019, Nature 575,
methods and supplementary pseudocode).

``N`` players: some that learn, and versions of them that were kept. Of one that learns, ``rate`` ``[N]`` is the chance
that it wins against each (`opponents.win_rates`). Masks over players are bool ``[N]``. What is returned are
probabilities of opponents ``[N]``, for `opponents.choose`.
"""

import jax
import jax.numpy as jnp

from purerl.formulas import opponents
from purerl.types import Array, Scalar

PRIORITISED, VERIFYING = 0.5, 0.15
"""Parts of a main agent's games against all versions, and against those that it may have forgotten to beat."""
EVEN, STRONG, HOPELESS, BEATEN = 0.5, 0.3, 0.2, 0.7
"""Win rates: below which a version of itself is forgotten, and one of a main exploiter strong; below which a main
exploiter learns from versions of the main agent; above which an exploiter has done its work."""
ENOUGH_GAMES = 30.0
"""Decayed games from which a win rate may say that an exploiter has done its work; AlphaStar gives none."""
RESET = 0.25
"""Chance that a league exploiter begins anew when a version of it is kept; a main exploiter always does."""


def main_agent(rate: Array, kept: Array, own: Array, exploiters: Array, me: int) -> Array:
    """A main agent's opponents: half of its games by prioritised fictitious self-play against all versions ``kept``;
    0.15 against versions of its ``own`` that it no longer beats and strong ones of main ``exploiters``, by the same
    rule; the rest, and these where there are none, against itself, player ``me``."""
    itself = jax.nn.one_hot(me, len(rate))
    missed = (own & (rate < EVEN)) | (exploiters & (rate < STRONG))
    hard = opponents.hard(rate)
    verifying = jnp.where(jnp.any(missed), opponents.shares(hard, missed), itself)
    everyone = opponents.shares(hard, kept)
    return PRIORITISED * everyone + VERIFYING * verifying + (1 - PRIORITISED - VERIFYING) * itself


def main_exploiter(rate: Array, of_main: Array, main: int) -> Array:
    """A main exploiter's opponents: the player ``main``; while it hardly ever wins, half of the time versions
    ``of_main`` that are about as strong as it is."""
    newest, past = jax.nn.one_hot(main, len(rate)), opponents.shares(opponents.variance(rate), of_main)
    hopeless = (rate[main] < HOPELESS) & jnp.any(of_main)
    return jnp.where(hopeless, (newest + past) / 2, newest)


def league_exploiter(rate: Array, kept: Array) -> Array:
    """A league exploiter's opponents: all versions ``kept``, those as strong or stronger alike."""
    return opponents.shares(opponents.capped(rate), kept)


def beats(rate: Array, games: Array, rivals: Array) -> Scalar:
    """Whether a player wins more than 0.7 of its games against each of ``rivals``, of which there must be some, by
    enough decayed ``games`` ``[N]`` with each."""
    wins = (rate > BEATEN) & (games >= ENOUGH_GAMES)
    return jnp.any(rivals) & jnp.all(wins | ~rivals)
