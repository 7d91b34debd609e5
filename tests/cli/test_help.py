"""Help: its width, what it shows at first and under which headings, and what it says of a user's own parts."""

import dataclasses
import itertools
import re

import pytest
from commands import own_module, run

from purerl.algos import ALGORITHMS
from purerl.cli import helping, parsing
from purerl.display import output
from purerl.learned import SOCKET_NAMES
from purerl.runs.describing import options, reading_options

OWN = '''
import dataclasses

from purerl import config as cfg
from purerl import ppo
from purerl.learners.wrappers import Wrapper


@cfg.config
class Config(ppo.own_config):
    """My settings."""

    courage: cfg.Fraction = 0.5
    """How much the agent dares."""
    heading: cfg.Fraction = 0.125
    """Where to."""


@cfg.config
class Settings:
    """My wrapper."""

    haste: cfg.Fraction = 0.25
    """How soon the agent acts."""
    sizes: tuple[int, ...] = dataclasses.field(default_factory=lambda: (3, 4))
    """Made by a factory."""


@cfg.config
class Undocumented:
    hurry: cfg.Fraction = 0.75


mine = ppo._replace(name="mine", own_config=Config)
hasty = Wrapper("hasty", Settings, "haste", off=0.0, wrap=lambda config, env, learner: learner)
loop = Wrapper("loop", Undocumented, "hurry", off=0.0, wrap=lambda config, env, learner: learner)
'''


@pytest.fixture
def shown(capsys, monkeypatch):
    """A function that returns the help of a command at a width."""

    def text(*args, width=80):
        monkeypatch.setenv("COLUMNS", str(width))
        run(*args)
        return capsys.readouterr().out

    return text


def names(text):
    """The options in a help."""
    return re.findall(r"^  --([a-z][a-z-]*)", text, re.MULTILINE)


def headings(text):
    return [above.strip() for above in re.findall(r"^ (.*)\n -{9,} $", text, re.MULTILINE)]


@pytest.mark.parametrize("width", [80, 120])
def test_lines_are_as_long_as_the_terminal_allows(shown, width):
    """No line is longer, and none ends before a word that would have fitted."""
    lines = shown("train", "ppo", "--help", "all", width=width).splitlines()
    assert max(map(len, lines)) == width
    rows = [line if re.match(" {10} *[^ ]", line) else "" for line in lines]
    pairs = [(above.rstrip(), below.split()[0]) for above, below in itertools.pairwise(rows) if above and below]
    assert len(pairs) > 50 and not [pair for pair in pairs if len(" ".join(pair)) <= width]


@pytest.mark.parametrize("command", [["train", "ppo"], ["evolve", "value-loss"]])
def test_few_options_are_shown_first(shown, command):
    first, whole = shown(*command, "--help"), shown(*command, "--help", "all")
    assert {"env", "total-steps", "num-envs", "learning-rate", "hidden-sizes", "seed"} <= set(names(first))
    assert set(names(first)) < set(names(whole)) and len(names(first)) <= helping.MOST
    assert first.splitlines()[-1] == f"--help all shows {len(names(whole)) - len(names(first))} more"


def test_the_data_and_own_settings_are_shown_first(shown):
    assert {"data", "cloning", "total-steps"} <= set(names(shown("train", "td3-bc", "--help")))


def test_all_options_stand_under_headings(shown):
    text = shown("train", "ppo", "--help", "all")
    kind = parsing.grouped(parsing.with_learned(options.TrainOptions, "ppo"), ALGORITHMS["ppo"])
    assert {f"--{name}" for name in names(text)} == {x for x in parsing.flags(kind) if x[:5] != "--no-"} - {"--help"}
    parts = "ppo,network,loop,optimiser,curriculum,intrinsic reward,reference policy,opponents,league,host environment"
    assert headings(text) == ["options", *(f"{part} options" for part in [*parts.split(","), "device"])]


@pytest.mark.parametrize("command", [["eval"], ["evolve", "report"], ["list"]])
def test_a_command_with_few_options_shows_all(shown, command):
    text = shown(*command, "--help")
    assert text == shown(*command, "--help", "all") and "more" not in text.splitlines()[-1]
    assert headings(text)[0] == "positional arguments"


def test_own_parts_are_shown_first(shown, tmp_path, monkeypatch):
    command = "train", "help_own:mine", "--wrapper", "help_own:hasty", "--wrapper", "help_own:loop"
    with own_module(tmp_path, monkeypatch, "help_own", OWN):
        first, whole = shown(*command, "--help"), shown(*command, "--help=all")
    assert {"env", "courage", "heading", "haste", "sizes", "hurry"} <= set(names(first))
    assert len(names(first)) == helping.MOST
    assert "How much the agent dares. (default: 0.5)" in first and "How soon the agent acts." in first
    assert {"mine options", "wrapper options"} <= set(headings(first))
    assert {"mine options", "hasty options"} <= set(headings(whole)) and "My wrapper." in whole
    assert "Made by a factory. (default: 3 4)" in whole and "Undocumented(" not in whole
    assert {"loop options", "own loop options"} <= set(headings(whole))
    assert "--total-steps" in whole[whole.index(" loop options") :].split(" optimiser options")[0]


def test_values_of_a_file_are_shown_as_defaults(shown, tmp_path):
    (tmp_path / "start.yaml").write_text("command: train\nalgo: ppo\nconfig: {gamma: 0.875}\n")
    text = shown("train", "--config", str(tmp_path / "start.yaml"), "--help")
    assert "Discount factor per step. (default: 0.875)" in text


def test_only_options_are_named_as_often_changed():
    of_commands = {**vars(options), **vars(reading_options)}.values()
    kinds = [kind for kind in of_commands if dataclasses.is_dataclass(kind)]
    kinds += [parsing.with_settings(options.EvolveOptions, socket) for socket in SOCKET_NAMES]
    kinds += [parsing.with_learned(options.TrainOptions, algo) for algo in ALGORITHMS]
    kinds += [algorithm.Config for algorithm in ALGORITHMS.values()]
    known = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    assert set(helping.OFTEN) <= known and len(set(helping.OFTEN)) == len(helping.OFTEN)


def test_rows_go_on_in_their_column(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert output.flowing("a b\n\n  name  one two three four") == "a b\n\n  name  one two\n        three four"
