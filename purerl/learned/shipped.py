"""Learned functions that come with purerl: files of `purerl.learned.artefacts`, by name."""

from pathlib import Path

FOLDER = Path(__file__).with_name("shipped")


def files() -> dict[str, Path]:
    """Returns the files of the learned functions that come with purerl, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.json"))}
