"""Episodes that never end."""

from ten import Ten


class Endless(Ten):
    """Never ends."""

    length = 10**9
