"""Writes and checks the version and the date of a release; docs/releasing.md has the steps.

    python scripts/release.py begin VERSION   # opens a version: its heading in CHANGELOG.md, version.py, CITATION.cff
    python scripts/release.py date            # writes today's date (UTC) to CHANGELOG.md and CITATION.cff
    python scripts/release.py check [TAG]     # prints what keeps the version from being released; exit code 1
    python scripts/release.py notes           # prints the version's section of CHANGELOG.md as notes of a release

It needs no package, so that it runs before anything is installed.
"""

import argparse
import datetime
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
UNRELEASED = "unreleased"
VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
HEADING = re.compile(r"^## (\S+) - (\S+)\n", re.MULTILINE)
IN_PACKAGE = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
IN_CITATION = re.compile(r"^version: (\S+)\n(?:date-released: (\S+)\n)?", re.MULTILINE)


class Files(NamedTuple):
    """The texts of the files that have the version."""

    package: str
    changelog: str
    citation: str


PATHS = Files("purerl/version.py", "CHANGELOG.md", "CITATION.cff")


def read(root: Path) -> Files:
    return Files(*((root / path).read_text() for path in PATHS))


def write(root: Path, files: Files) -> None:
    for path, text in zip(PATHS, files, strict=True):
        (root / path).write_text(text)


def begun(files: Files, version: str) -> Files:
    """The files with a new version at the top of the changelog, without a date."""
    heading = f"## {version} - {UNRELEASED}\n\n"
    return Files(
        IN_PACKAGE.sub(f'__version__ = "{version}"', files.package),
        HEADING.sub(lambda match: heading + match[0], files.changelog, count=1),
        IN_CITATION.sub(f"version: {version}\n", files.citation),
    )


def dated(files: Files, date: str) -> Files:
    """The files with the date of the newest version."""
    return files._replace(
        changelog=HEADING.sub(rf"## \1 - {date}\n", files.changelog, count=1),
        citation=IN_CITATION.sub(rf"version: \1\ndate-released: {date}\n", files.citation),
    )


def differences(files: Files) -> list[str]:
    """Where the files differ in the version or its date, a line each."""
    newest = HEADING.search(files.changelog).groups()
    cited, cited_date = IN_CITATION.search(files.citation).groups()
    named = {PATHS.package: (IN_PACKAGE.search(files.package)[1],), PATHS.citation: (cited, cited_date or UNRELEASED)}
    return [
        f"{path} has {value}, and {PATHS.changelog} {newest[i]}"
        for path, values in named.items()
        for i, value in enumerate(values)
        if value != newest[i]
    ]


def problems(files: Files, today: datetime.date, tag: str | None = None) -> list[str]:
    """What keeps the newest version from being released today, with this tag, a line each."""
    version, date = HEADING.search(files.changelog).groups()
    lines = differences(files)
    if not VERSION.fullmatch(version):
        lines.append(f"{PATHS.changelog}: {version} is no version such as 1.2.3 or 1.2.3rc1")
    try:
        if datetime.date.fromisoformat(date) > today:
            lines.append(f"{PATHS.changelog}: {date} is in the future")
    except ValueError:
        lines.append(f"{PATHS.changelog}: {version} is {date}: it needs a date such as {today}")
    if tag not in (None, f"v{version}"):
        lines.append(f"the tag is {tag}, and must be v{version}")
    if not notes(files.changelog):
        lines.append(f"{PATHS.changelog}: {version} has no notes")
    return lines


def notes(changelog: str) -> str:
    """The newest section as notes of a release.

    Each paragraph and item is one line, since the page of a release breaks lines where its text does. Links to files of
    the repository, which lead nowhere from that page, become their texts.
    """
    text = HEADING.split(changelog, maxsplit=2)[3]
    text = re.sub(r"(?<=\S)\n +(?=[^\s-])|(?<=[^\s#])\n(?=[^\s#-])", " ", text)
    return re.sub(r"\[([^\]]*)\]\((?!\w+://)[^)]*\)", r"\1", text).strip()


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = result.add_subparsers(dest="command", required=True)
    commands.add_parser("begin").add_argument("version", type=version)
    commands.add_parser("date")
    commands.add_parser("check").add_argument("tag", nargs="?")
    commands.add_parser("notes")
    return result


def version(text: str) -> str:
    """The text, if it is a version. Raises `argparse.ArgumentTypeError` if not."""
    if not VERSION.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text} is no version such as 1.2.3 or 1.2.3rc1")
    return text


def main() -> int:
    given, files, today = parser().parse_args(), read(ROOT), datetime.datetime.now(datetime.UTC).date()
    match given.command:
        case "begin":
            write(ROOT, begun(files, given.version))
        case "date":
            write(ROOT, dated(files, today.isoformat()))
        case "check":
            lines = problems(files, today, given.tag)
            print("\n".join(lines) or f"{HEADING.search(files.changelog)[1]} can be released")
            return bool(lines)
        case "notes":
            print(notes(files.changelog))
    return 0


if __name__ == "__main__":
    sys.exit(main())
