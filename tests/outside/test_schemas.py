"""The JSON-Schema-Test-Suite: what verifiers enforce of schemas."""

from __future__ import annotations

import json

import pytest

from tests.outside.archives import members
from tests.outside.enforcing import Tried
from tests.outside.tally import Tally

_MEANT = (
    "format.json: ",  # formats are enforced, where the suite takes them for annotations
    "vocabulary.json: schema that uses custom metaschema with with no validation vocabulary",  # keywords count always
    "ref.json: ref overrides any sibling keywords",  # as in every draft since 2019-09, keywords beside a $ref count
    "ref.json: $ref prevents a sibling $id from changing the base uri",
)
"""Cases that Outrider decides in another way on purpose."""


@pytest.mark.parametrize(
    ("draft", "most"),
    [("draft2020-12", {"partly": 133, "meant": 11}), ("draft7", {"partly": 46, "meant": 3})],
)
def test_instances_of_the_suite_are_allowed_as_it_says(draft: str, most: dict[str, int]) -> None:
    tally = Tally(f"JSON-Schema-Test-Suite, {draft}")
    for path, data in members("jsonschema", f"*/json/tests/{draft}/*.json").items():
        file = path.partition(f"{draft}/")[2]
        for case in json.loads(data) if "/" not in file else []:
            tried = Tried(case["schema"])
            for test in case["tests"]:
                name = f"{file}: {case['description']}: {test['description']}"
                tally.add(tried.kind(test["data"], test["valid"], name.startswith(_MEANT)), name)
    tally.close(**most)
