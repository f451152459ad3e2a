"""Links between the documents lead somewhere, and the documents stay small."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
MADE = {"build", "dist", "node_modules", "out"}
LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"^```[\s\S]*?^```|^ {4}.*$|`[^`\n]*`", re.MULTILINE)
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def documents() -> list[Path]:
    """Every Markdown file of the repository, but for what commands make."""
    found = []
    for folder, folders, files in os.walk(REPOSITORY):
        folders[:] = [name for name in folders if name not in MADE and not name.startswith(".")]
        found += [Path(folder, name) for name in files if name.endswith(".md")]
    return sorted(found)


def links(text: str) -> Iterator[str]:
    """Targets of a document's links that lead to files, without those inside code."""
    return (target for target in LINK.findall(CODE.sub("", text)) if not re.match(r"[a-z]+:", target))


def anchors(text: str) -> set[str]:
    """Anchors that GitHub gives a document's headings; a heading that comes again is numbered."""
    seen: Counter[str] = Counter()
    made = set()
    for heading in HEADING.findall(re.sub(r"^ {4}.*$", "", text, flags=re.MULTILINE)):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        made.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return made


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_every_link_of_a_document_leads_to_a_file_and_a_heading_of_it(document: Path) -> None:
    for link in links(document.read_text()):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


def test_links_are_read_outside_code_alone() -> None:
    text = "[a](one.md#x) `[b](two.md)` ![c](three.png) [d](https://example.org)\n\n    [e](four.md)\n\n[f](five.md)\n"
    assert list(links(text)) == ["one.md#x", "three.png", "five.md"]


def test_a_heading_that_comes_again_has_an_anchor_of_its_own() -> None:
    assert anchors("# A `slow` link, too\n## Again\n## Again\n") == {"a-slow-link-too", "again", "again-1"}


def test_benchmarks_are_kept_as_summaries() -> None:
    files = [path for path in (REPOSITORY / "docs" / "benchmarks").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 300_000
