"""How players share the episodes of a recording."""

import math
import os
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from purerl.errors import ConfigError

SHARED = re.compile(r"(.+)=([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})", re.DOTALL)
"""``POLICY=SHARE``."""


class Part(NamedTuple):
    """A player's part of a recording: the player's name, its share of all episodes, and their number."""

    name: str
    share: Fraction
    episodes: int


def parts(who: Sequence[str], episodes: int) -> list[Part]:
    """Divides ``episodes`` among players that are each named as ``POLICY=SHARE``; one alone needs no share.

    Shares are decimal numbers, relative to their sum. Of ``E`` episodes a player with the share ``s`` of the sum ``S``
    gets ``E s / S``, rounded down. The episodes that are left go one each to the players that lost most by rounding; of
    those that lost as much, to the first (the method of largest remainders).

    Raises:
        ConfigError: There is no player, one of several has no share, or a share is 0 or too small for an episode.
    """
    if not who:
        raise ConfigError("who: is missing; name a run, MODULE:FUNCTION or random")
    read = [None if os.path.isdir(text) else SHARED.fullmatch(text) for text in who]
    for text, found in zip(who, read, strict=True):
        if found and not Fraction(found[2]):
            raise ConfigError(f"who = {text!r}: its share must be above 0")
    if len(who) == 1:
        return [Part(read[0][1] if read[0] else who[0], Fraction(1), episodes)]
    names, weights = [], []
    for text, found in zip(who, read, strict=True):
        if not found:
            raise ConfigError(f"who = {text!r}: has no share; give each of several as POLICY=SHARE, such as random=0.9")
        names.append(found[1])
        weights.append(Fraction(found[2]))
    whole = sum(weights)
    exact = [episodes * weight / whole for weight in weights]
    counts = [math.floor(number) for number in exact]
    most_lost = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in most_lost[: episodes - sum(counts)]:
        counts[i] += 1
    if 0 in counts:
        text, number = who[counts.index(0)], float(exact[counts.index(0)])
        raise ConfigError(f"who = {text!r}: its share of {episodes} episodes is {number:.3g}, which gives none of them")
    return [Part(*part) for part in zip(names, [weight / whole for weight in weights], counts, strict=True)]
