"""Modules of runs and artefacts that the user has trusted, remembered outside of these.

An entry is a place, which is the real path of a run directory or an artefact; a ``MODULE:ATTRIBUTE`` that its files
name; and the SHA-256 of the module's source at that time. If any of these differs, the module is not trusted. No module
is imported or run for this check.
"""

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterable
from importlib import machinery
from pathlib import Path

from purerl.errors import ConfigError, printable
from purerl.names import Trust
from purerl.store import guards, writing
from purerl.store.writing import atomic

MOST = 1000
"""The most entries that are remembered; the latest are kept."""
MOST_BYTES = 2**22
"""The largest size of the file, and of a module's source, that is read, in bytes."""
Entry = tuple[str, str, str]
"""The place, the ``MODULE:ATTRIBUTE``, and the digest."""


def location() -> Path:
    """Returns the file of entries, in the user's directory of state: ``$XDG_STATE_HOME`` or ``~/.local/state``."""
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state if os.path.isabs(state) else os.path.expanduser("~/.local/state"))
    folder = folder if folder.is_absolute() else Path(os.devnull)  # without a home directory nothing is remembered
    return folder / "purerl" / "trusted.json"


def memory(given: bool) -> Trust:
    """Makes the `Trust` of a command: in what was trusted before and has not changed.

    If ``given`` (``--trust``), everything that is asked for is trusted, and remembered.
    """

    def refusal(where: Path, name: str) -> str:
        if given:
            remember(where, [name])
            return ""
        return _reason(os.path.realpath(where), name)

    return refusal


def remember(where: Path, names: Iterable[str]) -> None:
    """Remembers each ``MODULE:ATTRIBUTE`` among ``names`` as trusted in a place, if its source can be determined.

    If the file cannot be written, nothing is remembered.
    """
    entries = [(os.path.realpath(where), part, digest(part)) for name in names for part in _parts(name)]
    new = {entry[:2]: entry for entry in entries if entry[2]}
    if not new:
        return
    before = {entry[:2]: entry for entry in _entries() if entry[:2] not in new}
    latest = [*before.values(), *new.values()][-MOST:]
    path = location()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic(path) as temporary:
            made = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(made, "wb") as file:
                file.write(writing.canonical({"format": 1, "trusted": latest}) + b"\n")


def _reason(where: str, name: str) -> str:
    """Returns why the module that a place names is not trusted; empty if it is."""
    known = {entry[:2]: entry[2] for entry in _entries()}
    for part in _parts(name):
        was, now = known.get((where, part)), digest(part)
        if was is None:
            return "is new here"
        if not now:
            return "whose source can no longer be found"
        if was != now:
            return "has changed since it was trusted"
    return ""


def digest(name: str) -> str:
    """Computes the SHA-256 of the source of the module in ``MODULE:ATTRIBUTE`` and of the packages that contain it.

    The packages are run with the module. Empty if the sources that Python would import cannot be determined.
    """
    sources = _sources(name.removeprefix("gymnasium/").partition(":")[0])
    try:
        parts = [hashlib.sha256(guards.read_bytes(path, MOST_BYTES)).digest() for path in sources]
    except ConfigError:
        return ""
    return hashlib.sha256(b"".join(parts)).hexdigest() if parts else ""


def _sources(module: str) -> list[Path]:
    """Returns the files that importing a module runs: those of its packages, from the outermost on, and its own.

    Empty if they are not all plain source that lies where `sys.path` leads.
    """
    if module.endswith(".py"):
        return [Path(module).resolve()] if Path(module).is_file() else []
    folders = [Path(folder or os.getcwd()) for folder in ["", *sys.path]]
    names, sources = module.split("."), []
    if names[0] in sys.builtin_module_names or not all(name.isidentifier() for name in names):
        return []
    for name in names:
        file, folders = _step(name, folders)
        if file is None and not folders:
            return []
        sources += [file] if file else []
    return sources if file else []


def _step(name: str, folders: list[Path]) -> tuple[Path | None, list[Path]]:
    """Returns the source of a module that is looked for in ``folders``, and the folders of its own modules.

    The latter are its package's folder, or those of a package without source. Neither is returned if Python would
    import something else.
    """
    without: list[Path] = []
    for folder in folders:
        if folder.is_file():  # an archive that may contain it
            return None, []
        package = folder / name
        for stem, inside in ((package / "__init__", [package]), (package, [])):
            there = [s for s in machinery.all_suffixes() if Path(f"{stem}{s}").is_file()]
            if there:
                plain = not set(there) & set(machinery.EXTENSION_SUFFIXES) and ".py" in there
                return (Path(f"{stem}.py"), inside) if plain else (None, [])
        if package.is_dir():
            without.append(package)
    return None, without


def _parts(name: str) -> list[str]:
    """Returns each ``MODULE:ATTRIBUTE`` in the name of an algorithm or an environment."""
    return [part for part in name.split("+") if ":" in part]


def _entries() -> list[Entry]:
    """Reads the entries in the file; none, with a line on stderr, if it is damaged."""
    path = location()
    if not os.path.lexists(path):
        return []
    try:
        document = guards.read_json(path, MOST_BYTES)
        rows = document.get("trusted") if isinstance(document, dict) and document.get("format") == 1 else None
        if not isinstance(rows, list) or not all(
            isinstance(row, list) and len(row) == 3 and all(isinstance(text, str) for text in row) for row in rows
        ):
            raise ConfigError(f"{path}: is not a list of trusted code")
    except ConfigError as error:
        print(f"purerl: {printable(str(error))}; ignored: no code is trusted", file=sys.stderr)
        return []
    return [(where, name, digest) for where, name, digest in rows[-MOST:]]
