"""Learned functions in the files of their authors: a user provides the files, and known ones are recognised by digest.

The files hold numbers alone, and are untrusted input: size, shapes and numbers are checked before use, and nothing in
them is run as code.
"""

import hashlib
import io
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from purerl.errors import ConfigError
from purerl.learned import disco, open_optimiser
from purerl.store import guards
from purerl.types import PyTree

MOST_BYTES = 2**24
"""The largest size of a file, in bytes."""
MOST_HEADER = 2**10
"""The largest size of a ``.npy`` file's header within an archive, in bytes."""
HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(?P<length>..)"
    rb"\{'descr': '<f4', 'fortran_order': (?P<order>True|False), 'shape': \((?P<shape>\d{1,7}(, ?\d{1,7}){0,3},?)\), \}"
    rb" *\n",
    re.DOTALL,
)
"""The header of a ``.npy`` file of float32 numbers."""


class Source(NamedTuple):
    """The source of a published function: its authors' name for it, where it is, its licence, and the work to cite."""

    name: str
    where: str
    licence: str
    cite: str


class PublishedFunction(NamedTuple):
    """The parts of an artefact that are read from a published file."""

    socket: str
    meta_params: PyTree
    card: dict[str, Any]
    settings: dict[str, Any]


DISCO = Source(
    "DiscoRL",
    "github.com/google-deepmind/disco_rl, disco_rl/update_rules/weights",
    "Apache-2.0; everything that is not software: CC-BY 4.0",
    'Oh, Farquhar, Kemaev, Calian, Hessel, Zintgraf, Singh, van Hasselt, Silver, "Discovering state-of-the-art '
    'reinforcement learning algorithms", Nature 2025 (doi 10.1038/s41586-025-09761-x)',
)
OPEN = Source(
    "OPEN",
    "github.com/AlexGoldie/rl-learned-optimization, rl_optimizer/pretrained",
    "Apache-2.0",
    'Goldie, Lu, Jackson, Whiteson, Foerster, "Can Learned Optimization Make Reinforcement Learning Less Difficult?", '
    "NeurIPS 2024 (arXiv 2407.07082)",
)
KNOWN = {
    "dac840a15b81e8805326363458c33979626172618f620d9e6e170315388530aa": "disco_103.npz",
    "d7f0876c78736a0e354f8837e2a549dc7f45ff4d01f952ba9d547d8afc6f7926": "breakout_OPEN.npy",
    "55d96c80dca70e4a308352798daec00fc962d7a3faacc24f612e1b437c1893aa": "asterix_OPEN.npy",
    "97ea3f8f9a6e34523dd50c138a1538b33fbd2b1c3a5ee05a31014460825ea9f0": "freeway_OPEN.npy",
    "42845f4c0b6b460789afffb1788f806e676b27acafa0febf34e86bd63d3e362f": "spaceinvaders_OPEN.npy",
    "e1901cafe323d1c5619b84e5178b3075c95a7cde920777e2c15e58c812c3e725": "ant_OPEN.npy",
    "16ebb93a79adbcbfdb3e6019986109ee374764cb9cc8b0ad65f69bdcaedd9bb5": "gridworld_OPEN.npy",
    "9ba2dea70b0b308a365516dab092808b7b9211c70072bca934d83affaee5f60c": "multi_OPEN.npy",
}
"""Names of published files by their SHA-256."""
OPEN_SIZES = {1211: (8, 16), 3571: (16, 32)}
"""The widths of the memory and of the layers after it, by how many numbers a file of OPEN has."""


def is_one(path: Path) -> bool:
    """Returns whether a file has the suffix of a published one."""
    return path.suffix.lower() in READERS


def read(path: Path) -> PublishedFunction:
    """Reads a published file. Raises `ConfigError`, a line that names its path, for one that is not valid."""
    raw = guards.read_bytes(path, MOST_BYTES)
    try:
        return READERS[path.suffix.lower()](raw)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def card(source: Source, digest: str) -> dict[str, Any]:
    """Returns the card of an artefact that is read from a published file."""
    file = KNOWN.get(digest, f"unknown: no published file has these numbers, sha256 {digest}")
    return {**source._asdict(), "file": file, "sha256": digest}


def array(raw: bytes, ndim: int = 1) -> np.ndarray:
    """Reads finite float32 numbers of ``ndim`` axes from the bytes of a ``.npy`` file.

    Raises:
        ConfigError: The bytes are anything else.
    """
    header = HEADER.match(raw)
    if not header or int.from_bytes(header["length"], "little") != header.end() - 10:
        raise ConfigError("is not a .npy file of float32")
    shape = [int(size) for size in header["shape"].split(b",") if size]
    if len(shape) != ndim:
        raise ConfigError(f"has {len(shape)} axes; must have {ndim}")
    if len(raw) != header.end() + 4 * math.prod(shape):
        raise ConfigError(f"has {len(raw)} bytes, which are not those of {math.prod(shape)} numbers")
    numbers = np.frombuffer(raw, "<f4", offset=header.end())
    if not np.all(np.isfinite(numbers)):
        raise ConfigError("has numbers that are not finite")
    return numbers.reshape(shape, order="F" if header["order"] == b"True" else "C").copy()


def arrays(raw: bytes, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Reads finite float32 arrays with the names and shapes ``shapes`` from the bytes of a ``.npz`` file.

    It unpacks no more bytes than these arrays take, whatever sizes the archive declares.

    Raises:
        ConfigError: The archive holds anything else.
    """
    result: dict[str, np.ndarray] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as files:
            members = files.infolist()
            if sorted(file.filename for file in members) != sorted(f"{name}.npy" for name in shapes):
                raise ConfigError(f"does not hold the {len(shapes)} arrays of an update rule of DiscoRL")
            if not all(file.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for file in members):
                raise ConfigError("is compressed in a way that numpy does not write")
            for name, shape in shapes.items():
                most = MOST_HEADER + 4 * math.prod(shape)
                with files.open(f"{name}.npy") as file:
                    raw = file.read(most + 1)
                result[name] = array(raw, len(shape)) if len(raw) <= most else np.zeros(0)
                if result[name].shape != shape:
                    raise ConfigError(f"{name} must have the shape {list(shape)}")
    except ConfigError:
        raise
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, KeyError, NotImplementedError, RuntimeError):
        raise ConfigError("is not a .npz file of arrays") from None
    return result


def _open(raw: bytes) -> PublishedFunction:
    numbers = array(raw)
    if numbers.size not in OPEN_SIZES:
        sizes = " or ".join(map(str, OPEN_SIZES))
        raise ConfigError(f"has {numbers.size} numbers; an optimiser of OPEN has {sizes}")
    memory, width = OPEN_SIZES[numbers.size]
    form = {"optimiser_form": "open", "optimiser_base": "none"}
    settings = {**form, "optimiser_memory": memory, "optimiser_layers": [width, width]}
    meta_params = unflatten(open_optimiser.read(settings), numbers)
    return PublishedFunction("optimiser", meta_params, card(OPEN, hashlib.sha256(raw).hexdigest()), settings)


def unflatten(made: open_optimiser.OpenSettings, numbers: np.ndarray) -> PyTree:
    """Makes meta-parameters from a vector in the order of `jax.flatten_util.ravel_pytree`, which OPEN's files have."""
    like = jax.eval_shape(lambda key: open_optimiser.init(made, key), jax.random.key(0))
    _, split = ravel_pytree(jax.tree.map(lambda x: jnp.zeros(x.shape), like))
    meta_params: PyTree = split(jnp.asarray(numbers))
    return meta_params


def _disco(raw: bytes) -> PublishedFunction:
    rule = jax.tree.map(jnp.asarray, arrays(raw, disco.shapes()))
    return PublishedFunction("disco", rule, card(DISCO, hashlib.sha256(raw).hexdigest()), {})


FILES = {"disco": "DiscoRL's disco_103.npz", "optimiser": "one of OPEN's files (NAME_OPEN.npy)"}
"""The published files of a socket, by its name."""
READERS: dict[str, Callable[[bytes], PublishedFunction]] = {".npy": _open, ".npz": _disco}
"""The functions that read files, by suffix."""
