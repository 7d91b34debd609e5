"""scripts/reproduce.py: what would run at full scale, without running it."""

import pytest
import reproduce

from purerl import cli
from purerl.meta import search
from purerl.meta.description import Setup


@pytest.mark.parametrize(("name", "least"), [("value-loss", 10**11), ("policy-drift", 6 * 10**9)])
def test_full_scale(name, least, monkeypatch, tmp_path):
    """The command line takes it, and it has the frames of the publication."""
    described = []
    monkeypatch.setattr(search, "search", lambda description, options: described.append(description) or 0)
    scales = reproduce.EXPERIMENTS[name]
    for scale in ("full", "ci"):
        assert cli.dispatch(["evolve", name, *scales[scale], "--out", str(tmp_path / "run")]) == 0
    full, small = (Setup.of(description) for description in described)
    assert full.frames * described[0].generations >= least
    assert small.frames * described[1].generations < 10**7
    for field in ("socket", "algo", "envs"):
        assert getattr(described[0], field) == getattr(described[1], field)
    assert described[0].strategy["name"] == described[1].strategy["name"]
