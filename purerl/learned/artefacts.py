"""Learned functions as files: a JSON document with meta-parameters or a closed form, and a card on how it was found.

Files are untrusted input: they contain no code, and their size, shapes and numbers are checked before use.
"""

import base64
import binascii
import functools
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.algos import ALGORITHMS, read_config
from purerl.errors import ConfigError
from purerl.learned import expressions, own_parts, published, shipped, socket_settings, sockets
from purerl.learners.parts import time_aware
from purerl.names import Trust, check_trusted
from purerl.store import guards, trusted_modules, writing
from purerl.types import Array, Env, PyTree

FORMAT = 1
"""Format version of the files; other versions are refused."""
NAME = "artefact.json"
"""Name of the file in a run directory."""

IMPORTS = "--trust imports it"
REPORT_IMPORTS = "`purerl evolve report --trust` of it imports it, and remembers that"
"""What errors advise where code is not trusted: in commands that have ``--trust``, and in others."""


class Artefact(NamedTuple):
    """A learned function for the socket named ``socket``, given by meta-parameters or by a closed form.

    One of ``meta_params`` and ``expression`` (see `purerl.learned.expressions`) is None. ``card`` describes, as JSON,
    how the function was trained and how it performs. ``measured`` holds what another run of the same search would
    measure differently: times and the machine. ``settings`` are the arguments that the socket was made with
    (`sockets.make`).
    """

    socket: str
    meta_params: PyTree
    expression: Any
    card: dict[str, Any]
    measured: dict[str, Any] = {}
    settings: dict[str, Any] = {}

    @property
    def option(self) -> str:
        """The command-line option for the part of an algorithm that the function replaces."""
        return self.made.option

    @property
    def made(self) -> sockets.Socket:
        """The socket that the function fits."""
        return sockets.make(self.socket, **self.settings)

    def parts(self, config: Any) -> dict[str, Any]:
        """Returns the keyword arguments of an algorithm's ``make_trainer`` that plug in the learned function."""
        if self.expression is None:
            return self.made.parts(self.meta_params, config)
        closed: Any = self.made.closed  # not None: `of_expression` checks it
        return closed(lambda **variables: expressions.evaluate(self.expression, variables))

    def env(self, env: Env) -> Env:
        """Returns ``env`` with the learned function plugged in.

        Raises:
            ConfigError: The function does not fit ``env``.
        """
        return self.made.env(self.meta_params, env)


def of_socket(
    socket: str,
    meta_params: PyTree,
    card: dict[str, Any],
    measured: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
) -> Artefact:
    """Makes an artefact of meta-parameters.

    Args:
        socket: The name of the socket.
        meta_params: The meta-parameters of the function.
        card: How the function was trained and how it performs, as JSON.
        measured: The times and the machine of the search, which are no part of the digest.
        settings: The arguments that the socket was made with.
    """
    return Artefact(socket, meta_params, None, card, measured or {}, settings or {})


def of_expression(socket: str, expression: Any, card: dict[str, Any]) -> Artefact:
    """Makes an artefact of a closed form, which is the whole drift or the whole value loss.

    Raises:
        ConfigError: The socket takes no closed form, or ``expression`` is not valid.
    """
    variables = sockets.make(socket).variables
    if not variables:
        able = [name for name in sockets.SOCKETS if sockets.make(name).variables]
        raise ConfigError(f"socket = {socket!r}: does not take a closed form; {' and '.join(able)} do")
    expressions.check(expression, variables)
    return Artefact(socket, None, expression, card)


def training(artefact: Artefact, *, trust: Trust = False, where: Path = Path()) -> tuple[str, Any]:
    """Returns the name of the algorithm and the config that a function was trained with, from its card.

    Args:
        artefact: The learned function.
        trust: Whether an algorithm that is given as ``MODULE:ATTRIBUTE`` is imported (`purerl.names.Trust`).
        where: The path of the artefact, which a ``trust`` that is a function is called with.

    Raises:
        ConfigError: The card has no algorithm or config, they are not valid, or the algorithm is a ``MODULE:ATTRIBUTE``
            that is not trusted, and is therefore not imported.
    """
    algo, fields = artefact.card.get("algo"), artefact.card.get("config")
    if not isinstance(algo, str) or algo not in ALGORITHMS or not isinstance(fields, dict):
        raise ConfigError("artefact: its card must name the algorithm and the config")
    try:
        check_trusted("algo", algo, trust, where)
        if not sockets.fits(artefact.socket, algo):
            raise ConfigError(f"{algo}, which has no socket {artefact.socket}")
        config = read_config(algo, fields)
    except ConfigError as error:
        raise ConfigError("\n".join(f"artefact: its card has {line}" for line in str(error).splitlines())) from None
    if problems := ALGORITHMS[algo].problems(config, None):
        raise ConfigError("\n".join(f"artefact: its card has {line}" for line in problems))
    return algo, config


def save(path: Path, artefact: Artefact) -> None:
    """Writes `to_json` of an artefact to ``path``, atomically."""
    writing.write_json(path, to_json(artefact))


def load(path: str | Path, trust: Trust = False, advice: str = IMPORTS) -> Artefact:
    """Reads an artefact from its file, from a run directory, or from a published file (`published`).

    A ``path`` at which nothing exists may be the name of a function that comes with purerl (`shipped.files`).

    Args:
        path: The file, the directory or the name.
        trust: Whether a socket that is a ``MODULE:ATTRIBUTE`` is imported (`purerl.names.Trust`), by the ``path``.
        advice: What the error advises where it is not trusted.

    Raises:
        ConfigError: The file is missing or not valid, or names a socket that is not trusted and is not imported.
    """
    where = path = Path(path)
    if not path.exists():
        if str(path) not in shipped.files():
            raise ConfigError(f"{path}: No such file or directory, and no name of `purerl list learned`")
        path = shipped.files()[str(path)]
    path = path / NAME if path.is_dir() else path
    if published.is_one(path):
        loaded = published.read(path)
        return of_socket(loaded.socket, loaded.meta_params, loaded.card, settings=loaded.settings)
    value = guards.read_json(path)
    try:
        return of_json(value, trust, where, advice)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def to_json(artefact: Artefact) -> dict[str, Any]:
    """Converts an artefact to JSON.

    Arrays become base64 of little-endian float32, which is exact for float32. Non-finite numbers of the card become
    null. The digest covers the function and its card, so that equal searches have equal digests; it does not cover
    ``measured``.
    """
    arrays = {name: np.asarray(x) for name, x in _named(artefact.meta_params).items()}
    words = {
        name: {"shape": list(x.shape), "float32": base64.b64encode(x.astype("<f4").tobytes()).decode()}
        for name, x in arrays.items()
    }
    function = {"socket": artefact.socket, "expression": artefact.expression, "meta_params": words}
    function |= {"settings": artefact.settings} if artefact.settings else {}
    card, measured = (json.loads(json.dumps(writing.finite(part))) for part in (artefact.card, artefact.measured))
    digest = _digest({**function, "card": card})
    return {"format": FORMAT, **function, "card": card, "measured": measured, "sha256": digest}


def of_json(value: Any, trust: Trust = False, where: Path = Path(), advice: str = IMPORTS) -> Artefact:
    """Reads an artefact from the JSON that `to_json` writes.

    Args:
        value: The JSON.
        trust: Whether a socket that is a ``MODULE:ATTRIBUTE`` is imported (`purerl.names.Trust`).
        where: The path of the artefact, which a ``trust`` that is a function is called with.
        advice: What the error advises where the socket is not trusted.

    Raises:
        ConfigError: ``value`` is not valid, or names a socket that is not trusted; the message is one line.
    """
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        version = value.get("format") if isinstance(value, dict) else None
        raise ConfigError(f"artefact: format {str(version)[:40]!r}, expected {FORMAT}")
    function = {name: value.get(name) for name in ("socket", "expression", "meta_params")}
    function |= {"settings": value["settings"]} if "settings" in value else {}
    card, measured, settings = value.get("card"), value.get("measured", {}), value.get("settings", {})
    if value.get("sha256") != _digest({**function, "card": card}):
        raise ConfigError("artefact: was changed after it was written (sha256 differs)")
    if not isinstance(card, dict):
        raise ConfigError("artefact: has no card")
    if not isinstance(measured, dict):
        raise ConfigError("artefact: what was measured must be an object")
    name, expression, words = (function[part] for part in ("socket", "expression", "meta_params"))
    if not isinstance(name, str) or (":" not in name and name not in sockets.SOCKETS):
        raise ConfigError(f"artefact: unknown socket {str(name)[:40]!r}; must be one of {', '.join(sockets.SOCKETS)}")
    if not isinstance(settings, dict) or (settings and name not in (*sockets.SETTINGS, *sockets.SIZED)):
        raise ConfigError(f"artefact: a {name} has no such settings")
    check_trusted("artefact: socket", name, trust, where, advice)
    if expression is not None:
        return of_expression(name, expression, card)._replace(measured=measured)
    try:
        if name in sockets.SIZED:
            socket_settings.read(sockets.SIZED[name], name, "hidden_sizes", settings)
        like = jax.eval_shape(sockets.make(name, **settings).init, jax.random.key(0))
    except ConfigError as error:
        raise ConfigError(f"artefact: {'; '.join(str(error).splitlines())}") from None
    return of_socket(name, _arrays(words, like), card, measured, settings)


def options(algo: str) -> dict[str, str]:
    """Returns the command-line options for the parts of an algorithm that can be learned, with the socket of each."""
    return {sockets.make(name).option: name for name in sockets.places(algo)}


def described(algo: str, given: Any) -> dict[str, Any]:
    """Loads the learned functions at the paths among the parsed options ``given`` and returns them as JSON, by option.

    Raises:
        ConfigError: A file is not valid or is for another socket; a line for each. Or a word has several
            meanings, or none.
    """
    documents, problems, places = {}, [], options(algo)
    for option, socket in places.items():
        if path := getattr(given, option, ""):
            if option in own_parts.SIGNATURES and own_parts.is_own(option, path):
                continue
            try:
                artefact = load(path, trusted_modules.memory(False), REPORT_IMPORTS)
            except ConfigError as error:
                problems.append(f"{option} = {path!r}: {error}")
                continue
            if not is_for(artefact, option, places):
                problems.append(
                    f"{option} = {path!r}: is a function for the socket {artefact.socket}, not for {socket}"
                )
            documents[option] = to_json(artefact._replace(measured={}))
    if problems:
        raise ConfigError("\n".join(problems))
    return documents


def is_for(artefact: Artefact, option: str, places: Mapping[str, str]) -> bool:
    """Returns whether an artefact is for an ``option`` of ``places``, which are those of `options`.

    One of a user's own socket is for the option that the socket names.
    """
    return artefact.option == option if ":" in artefact.socket else artefact.socket == places.get(option)


def read(described: dict[str, Any]) -> list[Artefact]:
    """Reads the learned functions from the result of `described`. Raises `ConfigError` as `of_json` does.

    Sockets of a user's own are imported: `described`, or whoever read them from a file, has checked that they may be.
    """
    return [of_json(value, trust=True) for value in described.values()]


def parts(learned: Iterable[Artefact], config: Any) -> dict[str, Any]:
    """Returns the keyword arguments of an algorithm's ``make_trainer`` that plug in all ``learned`` functions."""
    return {name: part for artefact in learned for name, part in artefact.parts(config).items()}


def problems(learned: Iterable[Artefact], config: Any) -> list[str]:
    """Returns why ``learned`` functions cannot be plugged into an algorithm with ``config``, a line each."""
    try:
        parts(learned, config)
    except ConfigError as error:
        return str(error).splitlines()
    return []


def environment(learned: Iterable[Artefact], env: Env) -> Env:
    """Returns ``env`` with all ``learned`` functions plugged in.

    Raises:
        ConfigError: A function does not fit ``env``.
    """
    return functools.reduce(lambda env, artefact: artefact.env(env), learned, env)


def check_timeless(artefact: Artefact) -> None:
    """Raises `ConfigError` for a function that depends on how far an agent's training has progressed."""
    if artefact.settings.get("time_aware"):
        raise ConfigError(f"{artefact.socket}: is time_aware; only functions without time inputs can be distilled")


def learned_drift(artefact: Any, log_ratio: Array, advantage: Array, config: Any, passed: float = 0.0) -> Array:
    """Computes the drift ``ratio * advantage - objective`` of an artefact or a `written.Written`, elementwise.

    Args:
        artefact: The learned function.
        log_ratio: ``[...]``, the logarithm of the ratio of probabilities.
        advantage: ``[...]``.
        config: The config of the algorithm.
        passed: The fraction of the training that has passed, for a function that is time-aware.
    """
    objective = time_aware.then(artefact.parts(config)["objective"], config, passed)
    return jnp.exp(log_ratio) * advantage - objective(log_ratio, advantage, config)


def _named(tree: PyTree) -> dict[str, Any]:
    """Returns the leaves of a tree by their path, as `jax.tree_util.keystr` writes it."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def _arrays(words: Any, like: PyTree) -> PyTree:
    """Decodes the arrays in ``words`` into the structure of ``like``. Raises `ConfigError` if any is not valid."""
    expected = _named(like)
    if not isinstance(words, dict) or set(words) != set(expected):
        raise ConfigError("artefact: its arrays are not those of the socket")
    leaves = []
    for name, shape in expected.items():
        word = words[name]
        if not isinstance(word, dict) or word.get("shape") != list(shape.shape):
            raise ConfigError(f"artefact: {name} must have the shape {list(shape.shape)}")
        try:
            text: Any = word.get("float32")
            raw = base64.b64decode(text, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise ConfigError(f"artefact: {name} is not base64") from None
        if len(raw) != 4 * math.prod(shape.shape):
            raise ConfigError(f"artefact: {name} has {len(raw)} bytes, expected {4 * math.prod(shape.shape)}")
        array = np.frombuffer(raw, "<f4").reshape(shape.shape)
        if not np.all(np.isfinite(array)):
            raise ConfigError(f"artefact: {name} has numbers that are not finite")
        leaves.append(jnp.asarray(array))
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _digest(function: dict[str, Any]) -> str:
    """Returns the SHA-256 of JSON, as hexadecimal digits."""
    return hashlib.sha256(writing.canonical(function)).hexdigest()
