"""What environments are told of drawing."""

import functools

import pytest

from purerl.errors import ConfigError
from purerl.hosts.drawing import drawn


class Always:
    """Draws always, and refuses to do without."""

    def __init__(self, render_mode="human"):
        if render_mode not in ("human", "rgb_array"):
            raise ValueError("The render argument must be in {'rgb_array', 'human'}")
        self.mode = render_mode


class Text(Always):
    metadata = {"render_modes": ["ansi"]}

    def __init__(self, render_mode="ansi"):
        assert render_mode == "ansi"
        self.mode = render_mode


class Unknown:
    """Hands everything to a function that knows no mode."""

    mode = "none"

    def __init__(self, **kwargs):
        (lambda: None)(**kwargs)


class Broken:
    """Cannot be made for another reason."""

    tries = 0

    def __init__(self, render_mode=None):
        Broken.tries += 1
        raise ValueError("no licence")


def make(kind, **more):
    try:
        return kind(**more)
    except Exception as error:
        raise ConfigError(f"cannot be made: {error}") from error


@pytest.mark.parametrize("kind, mode", [(Always, "rgb_array"), (Text, "ansi"), (Unknown, "none")])
@pytest.mark.parametrize("pictures", [False, True])
def test_an_environment_that_refuses_none_is_made_otherwise(kind, mode, pictures):
    assert drawn(functools.partial(make, kind), kind)(pictures).mode == mode


def test_an_environment_that_fails_for_another_reason_is_not_tried_again():
    with pytest.raises(ConfigError, match="no licence"):
        drawn(functools.partial(make, Broken), Broken)(False)
    assert Broken.tries == 1
