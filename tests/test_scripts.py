"""Commands of scripts that pages name, read by the script's own parser. Nothing runs."""

import importlib
import re
import shlex
from pathlib import Path

import act
import all_tiny
import mfos
import pytest

from purerl.cli import parsing
from purerl.runs.describing.options import EvolveOptions, TrainOptions

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
INSTEAD = {"NEXT": "1.2.3", "NAME": "minigrid"}
"""Words that pages write for any of a kind, and of which a parser takes but a few."""


def commands(text):
    """The commands of scripts in a page, as lists of words: in blocks of code, and in code within sentences. Brackets
    around what may be left out are dropped."""
    text = text.replace("\\\n", " ")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    found = [re.search(r"(?:^|\s)(scripts/[\w/]+\.py)(\s.*)?$", line, re.DOTALL) for line in lines]
    return [
        [each[1], *(word.strip("[]") for word in shlex.split(each[2] or "", comments=True))] for each in found if each
    ]


NAMED = sorted({tuple(words) for page in PAGES for words in commands(page.read_text())})


def parser(script):
    """The parser of a script, which is imported and does not run."""
    return importlib.import_module(Path(script).stem).parser()


def passed_on(given, more):
    """Reads what `reproduce` hands to purerl, as purerl does."""
    name = given.only[0]
    if given.experiment == "mfos":
        parsing.training("train", "ppo", TrainOptions, [*mfos.TRAININGS[given.scale][name], *more])
    else:
        options = parsing.with_settings(EvolveOptions, "cheap-talk")
        parsing.with_preset(options, "ppo", "purerl evolve", [*act.arguments(given.scale, name)[1:], *more])


def test_every_script_that_a_page_names_is_there():
    assert len(NAMED) > 80
    assert {script for script, *_ in NAMED if not (ROOT / script).is_file()} == set()


@pytest.mark.parametrize("words", [words for words in NAMED if len(words) > 1], ids=" ".join)
def test_a_script_takes_the_words_of_a_page(words):
    script, *words = words
    given, more = parser(script).parse_known_args([INSTEAD.get(word, word) for word in words if word != "--help"])
    if more:
        assert script == "scripts/reproduce.py", more
        passed_on(given, more)


def test_words_that_a_parser_does_not_know_are_refused():
    with pytest.raises(SystemExit):
        parser("scripts/reproduce.py").parse_known_args(["mfos", "--scale", "huge"])
    given, more = parser("scripts/reproduce.py").parse_known_args(["mfos", "--only", "coins", "--num-sedes", "1"])
    with pytest.raises(Exception, match="num-sedes"):
        passed_on(given, more)


def test_every_command_has_a_parser():
    run = {path.stem for path in (ROOT / "scripts").glob("*.py") if 'if __name__ == "__main__"' in path.read_text()}
    assert run <= set(all_tiny.COMMANDS)


TOOLS = {"all_tiny", "index", "release", "smoke", "on_gpu"}
"""Commands that measure nothing."""


@pytest.mark.parametrize("name", sorted(set(all_tiny.COMMANDS) - TOOLS))
def test_an_experiment_takes_what_it_is_tried_with(name):
    """`all_tiny` runs these words."""
    tried = list(all_tiny.tries(parser(name)))
    assert tried
    for words, _ in tried:
        assert parser(name).parse_args(words).scale == "tiny"
