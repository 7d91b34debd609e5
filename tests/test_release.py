"""The version, its date and the notes of a release."""

import datetime

import pytest
import release

import purerl

TODAY = datetime.date(2031, 5, 7)
NOTES = """### Added

- A thing, on
  two lines
  - and [its
    page](docs/a.md)
- [A site](https://example.org)

A paragraph
goes on."""
DATED = release.Files(
    '__version__ = "1.2.0"\n',
    f"# Changelog\n\n## 1.2.0 - 2031-05-06\n\n{NOTES}\n\n## 1.1.0 - 2030-01-01\n\n- Older.\n",
    "title: purerl\nversion: 1.2.0\ndate-released: 2031-05-06\nlicense: Apache-2.0\n",
)


def test_the_files_of_the_checkout_agree():
    files = release.read(release.ROOT)
    assert release.differences(files) == []
    assert release.HEADING.search(files.changelog)[1] == purerl.__version__


def test_a_dated_version_can_be_released():
    assert release.problems(DATED, TODAY, "v1.2.0") == []


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("package", "1.2.0", "1.2.1", "purerl/version.py has 1.2.1"),
        ("citation", "1.2.0", "1.1.0", "CITATION.cff has 1.1.0"),
        ("citation", "date-released: 2031-05-06\n", "", "CITATION.cff has unreleased"),
        ("changelog", "2031-05-06", "unreleased", "needs a date"),
        ("changelog", "2031-05-06", "2031-05-08", "in the future"),
        ("changelog", "1.2.0", "1.2", "no version such as"),
        ("changelog", NOTES, "", "has no notes"),
    ],
)
def test_what_keeps_a_version_from_being_released(file, old, new, said):
    files = DATED._replace(**{file: getattr(DATED, file).replace(old, new)})
    assert said in "\n".join(release.problems(files, TODAY))


def test_a_tag_names_the_version():
    assert release.problems(DATED, TODAY, "v1.1.0") == ["the tag is v1.1.0, and must be v1.2.0"]


def test_notes_are_of_the_newest_version_and_have_no_relative_links():
    assert release.notes(DATED.changelog).splitlines() == [
        "### Added",
        "",
        "- A thing, on two lines",
        "  - and its page",
        "- [A site](https://example.org)",
        "",
        "A paragraph goes on.",
    ]


def test_a_version_is_begun_and_dated():
    files = release.begun(DATED, "1.3.0")
    assert release.differences(files) == []
    assert len(release.problems(files, TODAY)) == 2
    files = release.dated(files, "2031-05-07")
    assert release.problems(files, TODAY) == ["CHANGELOG.md: 1.3.0 has no notes"]
    assert DATED.changelog.removeprefix("# Changelog") in files.changelog
