"""The last line of a run."""

from pathlib import Path

import pytest
from rich.console import Console

from purerl.display.tables import print_summary


@pytest.mark.parametrize(
    ("returns", "alive", "told"),
    [
        ([500.0, 300.0], [True, True], "return 400.0 (worst agent 300.0)"),
        ([500.0, 300.0, 7.0], [False, True, True], "return 153.5 (worst agent 7.0), 1 of 3 agents died"),
        ([500.0, 500.0], [False, False], "2 of 2 agents died"),
    ],
)
def test_the_dead_have_no_part_in_the_return(returns, alive, told, capsys):
    """Their policies are those from before, and may play well."""
    summary = {"status": "diverged", "steps_per_second": 2e6, "wall_seconds": 1.25, "return_mean": 500.0}
    summary |= {"return_per_seed": returns, "alive_per_seed": alive}
    print_summary(Console(stderr=True), Path("runs/x"), summary)
    assert capsys.readouterr().err == f"diverged: 2M frames/s, 1.2 s; {told}; runs/x\n"
