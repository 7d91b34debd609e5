"""A file of the name of a package of the standard library."""

import sys

sys.path.append("..")

from ten import Ten  # noqa: E402


class Mine(Ten):
    """Ten steps."""
