"""The documents: links lead somewhere, and the first commands are where people look for them."""

import re

import pytest

from tests.architecture.source import ROOT

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files(document):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_every_page_can_be_reached_from_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [
        path.relative_to(ROOT / "docs").as_posix()
        for path in DOCUMENTS
        if path.is_relative_to(ROOT / "docs")
    ]
    assert [page for page in pages if page != "index.md" and f"({page})" not in index] == []


@pytest.mark.parametrize("command", ["./run demo", "./run test"])
def test_readme_shows_each_command_alone_on_its_line(command):
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert command in [line.strip() for line in lines]
