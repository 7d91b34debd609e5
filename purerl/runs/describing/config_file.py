"""Config files: what a run is to do, as the run writes it into its directory and as a user may write it.

A file is JSON or YAML. It holds ``command`` (train, sweep or evolve), the fields of the run's description, and
``options``: what a user can ask for beside the description, such as ``checkpoint_seconds``. Whatever is left out has
its default. Files are untrusted input: nothing in them is executed or imported.
"""

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from purerl.errors import ConfigError
from purerl.names import Trust, check_trusted, existing
from purerl.store import guards, writing

FORMAT = 1
"""Format version of the files; other versions are refused."""
NAME = "config.json"
"""The name of the file in a run directory."""
MOST_BYTES = 2**27
"""The size of the largest file that is read, in bytes. It is this large because a run may hold learned functions."""
COMMANDS = ("train", "sweep", "evolve")
RECORDED = (
    "eval_episodes",
    "sample",
    "eval_every",
    "eval_envs",
    "log",
    "diagnostics",
    "agents_at_once",
    "lanes",
    "num_devices",
    "devices_per_agent",
    "checkpoint_seconds",
    "keep",
    "keep_best",
    "budget_seconds",
    "precision",
    "compile",
    "data_on",
)
"""The options that a run writes into its file beside its description."""
LENGTHS = ("total_steps", "generations")
"""The fields that give the length of a run."""


class ConfigFile(NamedTuple):
    """The content of a config file.

    It has the file's path, the command, the fields of a description and the options by name, and a line for each change
    that was made when the run was resumed.
    """

    path: Path
    command: str
    fields: dict[str, Any]
    options: dict[str, Any]
    history: list[str]

    def take(self, name: str, kind: type, default: Any) -> Any:
        """Returns the value of a field, or ``default`` if the file has none.

        Raises:
            ConfigError: If the value is not of type ``kind``.
        """
        value = self.fields.get(name, default)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ConfigError(f"{self.path}: {name} = {str(value)[:40]!r}: must be {kind.__name__}")
        return value

    def existing(
        self, values: Mapping[str, Any], known: Iterable[str], where: str = "", former: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Returns those of ``values``, which stand in the part ``where`` of the file, that exist (`names.existing`)."""
        return existing(values, known, f"{self.path}: {where}", former)


class Start(NamedTuple):
    """The values that a command starts from in place of its defaults.

    They are options and fields of the config by name, the values of a sweep, learned functions as JSON, datasets by
    path and digest, and the values of settings that shape programs.
    """

    file: ConfigFile
    options: dict[str, Any] = {}
    config: dict[str, Any] = {}
    swept: dict[str, list[float]] = {}
    learned: dict[str, Any] = {}
    datasets: dict[str, Any] = {}
    programs: dict[str, list[Any]] = {}


FRESH = Start(ConfigFile(Path(), "train", {}, {}, []))
"""What a command starts from without a config file: its defaults."""


def write(
    directory: Path, command: str, description: Any, options: Any, history: Sequence[str] = (), **more: Any
) -> None:
    """Writes the config file of a run into its directory.

    Args:
        directory: The run directory.
        command: ``train``, ``sweep`` or ``evolve``.
        description: The description, whose fields are written.
        options: The options of the command. Those in `RECORDED` are written, except for those that are fields of the
            description.
        history: A line for each change that was made when the run was resumed.
        **more: Further entries of the file.
    """
    fields = description.fields
    beside = {name: getattr(options, name) for name in RECORDED if hasattr(options, name) and name not in fields}
    written = {"format": FORMAT, "command": command, **fields, "options": beside, "history": history, **more}
    writing.write_json(directory / NAME, written)


def read(path: Path) -> ConfigFile:
    """Reads a config file, as YAML if its name ends in ``.yaml`` or ``.yml`` and as JSON otherwise.

    Raises:
        ConfigError: If the file is missing or is not a config file.
    """
    content = _yaml(path) if path.suffix in (".yaml", ".yml") else guards.read_json(path, MOST_BYTES)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must hold fields by their names")
    fields = dict(content)
    version, command = fields.pop("format", FORMAT), fields.pop("command", "train")
    options, history = fields.pop("options", {}), fields.pop("history", [])
    if version != FORMAT:
        raise ConfigError(f"{path}: format {str(version)[:40]!r}, expected {FORMAT}")
    if command not in COMMANDS:
        raise ConfigError(f"{path}: command = {str(command)[:40]!r}: must be one of {', '.join(COMMANDS)}")
    if not isinstance(options, dict):
        raise ConfigError(f"{path}: options must hold values by their names")
    return ConfigFile(path, command, fields, options, history if isinstance(history, list) else [])


def digest(fields: dict[str, Any]) -> str:
    """Computes the SHA-256 of the fields from which a run's results follow, as hexadecimal digits.

    It leaves out the length of the run, the paths of its datasets and of the run that it began with, and an empty
    ``stop``, ``split``, ``parts``, ``select`` and ``initial``.
    """
    kept = {name: value for name, value in fields.items() if name not in LENGTHS}
    if of_play := kept.pop("datasets", {}):
        kept["datasets"] = {name: entry.get("sha256") for name, entry in of_play.items()}
    if begun := kept.pop("warm_start", {}):
        kept["warm_start"] = {name: value for name, value in begun.items() if name != "run"}
    for name in ("stop", "split", "parts", "select", "initial"):
        if not kept.get(name):
            kept.pop(name, None)
    kept["config"] = {name: value for name, value in fields.get("config", {}).items() if name not in LENGTHS}
    return hashlib.sha256(writing.canonical(writing.finite(kept))).hexdigest()


def trusted(file: ConfigFile, named: Container[str], advice: str, trust: Trust = False) -> None:
    """Checks that a file names no code of a user's own, except for the names in ``named``.

    Args:
        file: The config file, of which the algorithm, its parts, the environments and sockets are checked.
        named: Names that are allowed.
        advice: What the error advises.
        trust: Whether code that files name is run.

    Raises:
        ConfigError: If the file names other code, unless ``trust``.
    """
    for name in code(file.fields).values():
        if name not in named:
            check_trusted(str(file.path), name, trust, file.path.parent, advice)


def code(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the names in the fields of a file that may be those of code, each by its place.

    They are those of the algorithm, its parts, the environments, a socket, and the sockets of learned functions.
    """
    of = lambda name: fields[name] if isinstance(fields.get(name), dict) else {}
    environments = fields.get("envs", [])
    named = {name: fields.get(name) for name in ("algo", "env", "socket")} | of("parts")
    named |= {f"envs: {i}": name for i, name in enumerate(environments if isinstance(environments, list) else ())}
    functions = of("learned") | {"initial": fields.get("initial")}
    named |= {f"{name}: socket": made.get("socket") for name, made in functions.items() if isinstance(made, dict)}
    return {place: name for place, name in named.items() if isinstance(name, str)}


def _yaml(path: Path) -> Any:
    try:
        return guards.yaml_document(guards.read_bytes(path, MOST_BYTES))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not a YAML file ({' '.join(str(error).split())[:200]})") from None
