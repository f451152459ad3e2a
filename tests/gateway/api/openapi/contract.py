"""Checks a gateway's answers against its OpenAPI document, with valid and invalid requests made from the document.

Schemathesis (https://schemathesis.readthedocs.io) makes the requests and judges the answers. Violations are: a status
of 500 or more, except 504 to a request that has a deadline; a status, content type, header, JSON or event that is not
in the document; and a success for a request that the document calls invalid.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import msgspec
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from outrider.measure.local_mesh import running
from outrider.mesh.access import access_to
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks

_CHECKS: list[Any] = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
_CHECKS_OF_LATE = [check for check in _CHECKS if check is not not_a_server_error]
_LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_ANSWERS = {
    "/v1/completions": "max_tokens",
    "/v1/chat/completions": "max_tokens",
    "/v1/responses": "max_output_tokens",
    "/v1/messages": "max_tokens",
}
_MAX_TOKENS = 8
"""Tokens of an answer; longer answers test nothing more."""
_BODY_FACTOR = 6
"""Factor on the number of requests of an operation that takes a body."""
_JSON = "application/json"
_DEADLINES = {"ttft_ms", "timeout_ms"}
_DEADLINE_HEADER = "x-request-timeout-ms"
_POOL = 32
_TIMEOUT_S = 60


class Violation(msgspec.Struct, frozen=True):
    """An answer that the document does not allow, and a command that gets it."""

    operation: str
    why: str
    command: str


class Contract:
    """Sends requests to the gateway at ``url``; counts statuses and collects violations.

    The contract is the document that the gateway serves, or ``document``.
    """

    def __init__(self, url: str, seed: int, document: dict[str, Any] | None = None) -> None:
        access, session = access_to(url), requests.Session()
        session.verify = str(access.ca) if access.ca else True
        session.headers.update(access.headers)
        served = document or session.get(f"{url}/openapi.json", timeout=_TIMEOUT_S).json()
        self._schema = schemathesis.openapi.from_dict(served)
        self._url, self._session, self._random = url, session, random.Random(seed)
        self._seed = seed
        self._ids: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.violations: list[Violation] = []

    def check(self, examples: int) -> None:
        """Sends up to ``examples`` requests, half of them invalid; operations that take a body get most."""
        results: Any = self._schema.get_all_operations()
        operations = [operation.ok() for operation in results]
        shares = [_BODY_FACTOR if operation.body else 1 for operation in operations]
        for operation, share in zip(operations, shares, strict=True):
            self._send_example(operation)
            for mode in GenerationMode:
                strategy = operation.as_strategy(generation_mode=mode)
                self._run(strategy, max(1, examples * share // (2 * sum(shares))))

    def _send_example(self, operation: Any) -> None:
        """Sends the document's example, also as a stream if the operation can stream."""
        path_values = dict.fromkeys(re.findall(r"{(\w+)}", operation.path), "example")
        if example := _example(operation):
            for more in ({}, {"stream": True}) if operation.path in _ANSWERS else ({},):
                self._send(operation.Case(path_parameters=path_values, body=example | more, media_type=_JSON))

    def _run(self, strategy: Any, examples: int) -> None:
        @seed(self._seed)
        @settings(
            max_examples=examples,
            phases=[Phase.generate],
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=strategy)
        def send(case: Any) -> None:
            self._send(case)

        with suppress(Unsatisfiable):  # an operation without parameters has no invalid request
            send()

    def _send(self, case: Any) -> None:
        if isinstance(case.body, dict):
            self._make_valid(case)
        if "id" in case.path_parameters and self._ids and self._random.random() < 0.5:
            case.path_parameters["id"] = self._random.choice(self._ids)
        response = case.call(base_url=self._url, session=self._session, timeout=_TIMEOUT_S)
        self.statuses[response.status_code] += 1
        self._remember(response)
        late = response.status_code == HTTPStatus.GATEWAY_TIMEOUT and _has_deadline(case)
        try:
            case.validate_response(response, checks=_CHECKS_OF_LATE if late else _CHECKS)
        except FailureGroup as failures:
            self._note(case, failures)

    def _make_valid(self, case: Any) -> None:
        """Makes a valid body succeed: drops an unknown model and some other fields, and keeps answers short."""
        if case.meta is not None and case.meta.generation.mode.is_positive:
            required, share = _example(case.operation), self._random.random()
            case.body = {
                name: value
                for name, value in case.body.items()
                if name in required or (name != "model" and self._random.random() < share)
            }
        if case.operation.path in _ANSWERS:
            lengths = {name: case.body[name] for name in _LENGTHS if _is_long(case.body.get(name))}
            case.body |= {_ANSWERS[case.operation.path]: _MAX_TOKENS} | case.body | dict.fromkeys(lengths, _MAX_TOKENS)

    def _remember(self, response: Any) -> None:
        """Keeps ids of streams and responses, so that later requests can name existing ones."""
        if response.status_code == 200 and len(self._ids) < _POOL:
            request = response.headers.get("x-request-id", "")
            self._ids += [request, f"resp_{request}"]

    def _note(self, case: Any, failures: FailureGroup) -> None:
        operation = f"{case.operation.method.upper()} {case.operation.path}"
        for failure in failures.exceptions:
            why = " ".join(str(failure).split())
            self.violations.append(Violation(operation, why, case.as_curl_command()))


def _example(operation: Any) -> dict[str, Any]:
    """The document's example of a body."""
    content = operation.definition.raw.get("requestBody", {}).get("content", {})
    return dict(content.get(_JSON, {}).get("example", {}))


def _has_deadline(case: Any) -> bool:
    """Whether the request itself bounds its time, so that a slow machine may answer 504."""
    body = case.body if isinstance(case.body, dict) else {}
    headers = {name.lower() for name in case.headers or {}}
    return not _DEADLINES.isdisjoint(body) or _DEADLINE_HEADER in headers


def _is_long(length: Any) -> bool:
    """Whether a length is valid and longer than needed."""
    return type(length) is int and _MAX_TOKENS < length < 1 << 31


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints statuses and violations; returns 1 if there are violations."""
    options = _parser().parse_args(arguments)
    if options.url:
        contract = _check(options.url, options)
    else:
        with running({}) as mesh:
            contract = _check(mesh.url, options)
    for violation in contract.violations:
        print(f"{violation.operation}: {violation.why}\n    {violation.command}")
    statuses = ", ".join(f"{count} of {status}" for status, count in sorted(contract.statuses.items()))
    print(f"{sum(contract.statuses.values())} requests: {statuses}; {len(contract.violations)} violations")
    return 1 if contract.violations else 0


def _check(url: str, options: argparse.Namespace) -> Contract:
    contract = Contract(url, options.seed)
    contract.check(options.examples)
    return contract


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make contract", description=__doc__)
    parser.add_argument("--url", help="a gateway; without it, a mesh is started")
    parser.add_argument("--examples", type=_positive, default=2000, help="most requests to send (2000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the requests (0)")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
