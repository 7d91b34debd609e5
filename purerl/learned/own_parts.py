"""A user's own parts of an algorithm, named on the command line: network, losses, estimate, optimiser.

A name is ``MODULE:NAME`` or ``FILE.py:NAME``; an optimiser may also be the name of one of optax, such as adamw or muon.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import optax

from purerl import names
from purerl.algos.algorithm import Algorithm, part_names
from purerl.errors import ConfigError
from purerl.learned import shipped
from purerl.learners.parts import gradients, settings
from purerl.learners.parts.given_parts import FORMS
from purerl.types import Env

NETWORK, ESTIMATE, OPTIMISER = "network", "estimate", "optimiser"
SIGNATURES = {
    NETWORK: "a network or its class, or NAME(config, env) -> network",
    ESTIMATE: "NAME(config) -> estimate(columns) -> (advantage [T], target [T])",
    OPTIMISER: "NAME(config) -> optax.GradientTransformation",
    **{
        name: FORMS[name].signature.replace(name, "NAME", 1)
        for name in ("objective", "value_loss", "td_loss", "weights")
    },
}
"""What a user's own part must be, by the name of the part."""


def options(algorithm: Algorithm) -> list[str]:
    """Returns the names of the parts of an algorithm that may be a user's own on the command line.

    They are all of `SIGNATURES` if it takes parts of any name.
    """
    names = part_names(algorithm.own_learner)
    return list(SIGNATURES) if names is None else [name for name in names if name in SIGNATURES]


def is_own(option: str, word: str) -> bool:
    """Returns whether a word on the command line names a part of the user's own or an optimiser of optax.

    Otherwise it is the path or the name of a learned function.

    Raises:
        ConfigError: The word has several meanings, which the text names, or none.
    """
    learned = option not in (NETWORK, ESTIMATE)
    meanings = [f"the path {word}"] if learned and names.here(word).exists() else []
    meanings += [f"the function {word} of `purerl list learned`"] if learned and word in shipped.files() else []
    of_user = [f"optax.{word}"] if option == OPTIMISER and gradients.is_name(word) else []
    of_user += [f"the attribute {word}"] if ":" in word else []
    if len(meanings + of_user) > 1:
        raise ConfigError(f"{option} = {word!r}: is {' and also '.join(meanings + of_user)}; rename one of them")
    if not meanings + of_user:
        kinds = ["No such file or directory", "no name of `purerl list learned`"] if learned else []
        kinds += ["no optimiser of optax"] if option == OPTIMISER else []
        raise ConfigError(f"{option} = {word!r}: {', '.join([*kinds, 'no MODULE:NAME or ./FILE.py:NAME of your own'])}")
    return bool(of_user)


def described(given: Any) -> dict[str, str]:
    """Returns the user's own parts among the parsed options ``given``, names by option.

    One that the algorithm does not take is among them, so that `Algorithm.make_learner` refuses it.

    Raises:
        ConfigError: A name has several meanings, or none; one line for each.
    """
    parts, problems = {}, []
    for option in SIGNATURES:
        if not (word := getattr(given, option, "")):
            continue
        try:
            if is_own(option, word):
                parts[option] = word
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    return parts


def problems_of_file(algorithm: Algorithm, parts: Mapping[str, Any]) -> list[str]:
    """Returns a line for each entry of the parts in a file that ``algorithm`` cannot have; imports nothing."""
    known = options(algorithm)
    lines = [f"parts: {name!r}: {algorithm.name} has no such part" for name in parts if name not in known]
    wrong = [
        name
        for name, word in parts.items()
        if not isinstance(word, str) or not (":" in word or (name == OPTIMISER and gradients.is_name(word)))
    ]
    return lines + [f"parts: {name!r}: must be MODULE:NAME" for name in wrong]


def made(parts: Mapping[str, str], config: Any, env: Env) -> dict[str, Any]:
    """Imports the parts, and returns them as keyword arguments of an algorithm's ``make_learner``.

    Args:
        parts: Names by part.
        config: The config of the algorithm.
        env: The environment as the algorithm sees it.

    Raises:
        ConfigError: A part cannot be imported, or fails.
    """
    return {part: _made(part, word, config, env) for part, word in parts.items()}


def _made(part: str, word: str, config: Any, env: Env) -> Any:
    """Returns what the algorithm takes for a part."""
    if part == OPTIMISER and ":" not in word:
        return _named(config, word)
    value = names.imported(part, word)
    call = lambda *args: names.called(part, word, value, *args)
    if part in (OPTIMISER, ESTIMATE):
        if not callable(value):
            raise ConfigError(f"{part} = {word!r}: is {type(value).__name__}; must be {SIGNATURES[part]}")
        try:
            return call(config)
        except ConfigError as error:
            raise ConfigError(f"{error}; must be {SIGNATURES[part]}") from error
    if part == NETWORK and isinstance(value, type):
        return call() if issubclass(value, nn.Module) else call(config, env)
    return call(config, env) if part == NETWORK and inspect.isfunction(value) else value


def _named(config: Any, word: str) -> optax.GradientTransformation:
    """Makes the optimiser of optax that a word names."""
    if not isinstance(config, settings.Adam):
        raise ConfigError(f"{OPTIMISER} = {word!r}: must be MODULE:NAME, as this algorithm does not step as Adam")
    return gradients.named(config, word)
