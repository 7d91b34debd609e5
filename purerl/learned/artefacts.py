"""Discovered functions as files: one JSON document with the meta-parameters, or a closed form, and how they were found.

A file may come from anywhere. Nothing in it is code; its size, its shapes and its numbers are checked before they are
used.
"""

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.algos import ALGORITHMS, read_config
from purerl.errors import ConfigError
from purerl.learned import expressions, sockets
from purerl.store import json_files
from purerl.types import Array, PyTree

FORMAT = 1
NAME = "artefact.json"
MOST_BYTES = 2**26
"""The largest file that is read."""


class Artefact(NamedTuple):
    """A learned function of the socket called ``socket``: its meta-parameters, or a closed form in their place.

    ``card`` tells what it was trained on and how well it did.
    """

    socket: str
    meta_params: PyTree
    expression: Any
    card: dict[str, Any]

    @property
    def option(self) -> str:
        """The part of an algorithm that it takes the place of, as the command line names it."""
        return sockets.make(self.socket).option

    def parts(self, config: Any) -> dict[str, Any]:
        """The keyword arguments of ``make_trainer`` with the learned function in its place."""
        socket = sockets.make(self.socket)
        if self.expression is None:
            return socket.parts(self.meta_params, config)
        return socket.closed(lambda **variables: expressions.evaluate(self.expression, variables))


def of_socket(socket: str, meta_params: PyTree, card: dict[str, Any]) -> Artefact:
    """What was learned for a socket."""
    return Artefact(socket, meta_params, None, card)


def of_expression(socket: str, expression: Any, card: dict[str, Any]) -> Artefact:
    """A closed form for a socket that takes one: the whole drift, or the whole value loss. Raises `ConfigError`."""
    variables = sockets.make(socket).variables
    if not variables:
        able = [name for name in sockets.SOCKETS if sockets.make(name).variables]
        raise ConfigError(f"socket = {socket!r}: takes no closed form; {' and '.join(able)} do")
    expressions.check(expression, variables)
    return Artefact(socket, None, expression, card)


def training(artefact: Artefact) -> tuple[str, Any]:
    """The algorithm and the config that a function was found with, by its card. Raises `ConfigError`."""
    algo, fields = artefact.card.get("algo"), artefact.card.get("config")
    if not isinstance(algo, str) or algo not in ALGORITHMS or not isinstance(fields, dict):
        raise ConfigError("artefact: its card names no algorithm and config")
    if artefact.socket not in ALGORITHMS[algo].sockets:
        raise ConfigError(f"artefact: its card names {algo}, which has no socket {artefact.socket}")
    try:
        config = read_config(algo, fields)
    except TypeError as error:
        raise ConfigError(f"artefact: its card has another config ({error})") from None
    if found := ALGORITHMS[algo].problems(config, None):
        raise ConfigError("\n".join(f"artefact: its card has {line}" for line in found))
    return algo, config


def save(path: Path, artefact: Artefact) -> None:
    """Writes `to_json`, whole or not at all."""
    json_files.write_json(path, to_json(artefact))


def load(path: str | Path) -> Artefact:
    """Reads an artefact from its file, or from the run directory that it lies in. Raises `ConfigError`."""
    path = Path(path)
    path = path / NAME if path.is_dir() else path
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: is no regular file")
    if path.exists() and path.stat().st_size > MOST_BYTES:
        raise ConfigError(f"{path}: larger than {MOST_BYTES} bytes")
    try:
        return of_json(json_files.read_json(path))
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    except ConfigError as error:
        raise ConfigError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def to_json(artefact: Artefact) -> dict[str, Any]:
    """An artefact as JSON; floats lose no bit."""
    arrays = {name: np.asarray(x) for name, x in _named(artefact.meta_params).items()}
    words = {
        name: {"shape": list(x.shape), "float32": base64.b64encode(x.astype("<f4").tobytes()).decode()}
        for name, x in arrays.items()
    }
    function = {"socket": artefact.socket, "expression": artefact.expression, "meta_params": words}
    card = json.loads(json.dumps(json_files.finite(artefact.card)))
    return {"format": FORMAT, **function, "card": card, "sha256": _digest({**function, "card": card})}


def of_json(value: Any) -> Artefact:
    """The artefact of `to_json`. Raises `ConfigError` with one line for anything else."""
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        found = value.get("format") if isinstance(value, dict) else None
        raise ConfigError(f"artefact: format {str(found)[:40]!r}, expected {FORMAT}")
    function = {name: value.get(name) for name in ("socket", "expression", "meta_params")}
    card = value.get("card")
    if value.get("sha256") != _digest({**function, "card": card}):
        raise ConfigError("artefact: it is not what was written (sha256 differs)")
    if not isinstance(card, dict):
        raise ConfigError("artefact: has no card")
    name, expression, words = function.values()
    if not isinstance(name, str) or name not in sockets.SOCKETS:
        raise ConfigError(f"artefact: unknown socket {str(name)[:40]!r}; must be one of {', '.join(sockets.SOCKETS)}")
    if expression is not None:
        return of_expression(name, expression, card)
    like = jax.eval_shape(sockets.make(name).init, jax.random.key(0))
    return of_socket(name, _arrays(words, like), card)


def options(algo: str) -> dict[str, str]:
    """The parts of an algorithm that a learned function can take the place of, and the sockets they belong to."""
    return {sockets.make(name).option: name for name in ALGORITHMS[algo].sockets}


def described(algo: str, given: Any) -> dict[str, Any]:
    """The learned functions that command-line options name, as JSON by part. Raises `ConfigError`, a line for each."""
    words, found = {}, []
    for option, socket in options(algo).items():
        if path := getattr(given, option, ""):
            try:
                artefact = load(path)
            except ConfigError as error:
                found.append(f"{option} = {path!r}: {error}")
                continue
            if artefact.socket != socket:
                found.append(f"{option} = {path!r}: holds a {artefact.socket}, expected a {socket}")
            words[option] = to_json(artefact)
    if found:
        raise ConfigError("\n".join(found))
    return words


def read(described: dict[str, Any]) -> list[Artefact]:
    """The learned functions of `described`. Raises `ConfigError`."""
    return [of_json(value) for value in described.values()]


def parts(learned: Iterable[Artefact], config: Any) -> dict[str, Any]:
    """The keyword arguments of ``make_trainer`` with all learned functions in their places."""
    return {name: part for artefact in learned for name, part in artefact.parts(config).items()}


def learned_drift(artefact: Artefact, log_ratio: Array, advantage: Array, config: Any) -> Array:
    """What a policy drift's objective takes from ``ratio * advantage``, elementwise."""
    objective = artefact.parts(config)["objective"]
    return jnp.exp(log_ratio) * advantage - objective(log_ratio, advantage, config)


def _named(tree: PyTree) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def _arrays(words: Any, like: PyTree) -> PyTree:
    """The structure of ``like`` with the arrays that ``words`` hold. Raises `ConfigError`."""
    expected = _named(like)
    if not isinstance(words, dict) or set(words) != set(expected):
        raise ConfigError("artefact: its arrays are not those of the socket")
    leaves = []
    for name, shape in expected.items():
        word = words[name]
        if not isinstance(word, dict) or word.get("shape") != list(shape.shape):
            raise ConfigError(f"artefact: {name} must have the shape {list(shape.shape)}")
        try:
            raw = base64.b64decode(word.get("float32"), validate=True)
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
    return hashlib.sha256(json.dumps(function, sort_keys=True).encode()).hexdigest()
