"""The scale of an experiment, which every script that has one takes: full, or tiny, a try of all of it in seconds."""

import argparse
from typing import Any


class Scale(argparse.Action):
    """``--scale``. At tiny, options (not positional arguments) left at their defaults have the values of ``tiny``.

    - ``needs``: what a tiny run needs beside the package, names of modules or words for something else, with commas; by
      the command's first word if there are several.
    - ``words``: what a tiny run has to be given.
    """

    def __init__(self, *args: Any, tiny: dict[str, Any], needs: str | dict[str, str], words: list[str], **options: Any):
        super().__init__(*args, **options)
        self.tiny, self.needs, self.words = tiny, needs, words

    def __call__(self, parser: Any, namespace: Any, value: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, value)
        for name, small in self.tiny.items() if value == "tiny" else ():
            if getattr(namespace, name) == parser.get_default(name):
                setattr(namespace, name, small)


def add(
    parser: argparse.ArgumentParser,
    needs: str | dict[str, str] = "",
    words: list[str] | None = None,
    choices: tuple[str, ...] = ("full", "tiny"),
    **tiny: Any,
) -> None:
    """Adds ``--scale`` with the values of other options at tiny; `Scale` has the rest."""
    positional = {each.dest for each in parser._actions if not each.option_strings}
    if positional & tiny.keys():
        raise ValueError(f"argparse sets positional arguments last: {positional & tiny.keys()}")
    text = "tiny: a try in seconds, of which nothing is claimed"
    given: dict[str, Any] = {"tiny": tiny, "needs": needs, "words": words or []}
    parser.add_argument("--scale", action=Scale, choices=choices, default=choices[0], help=text, **given)
