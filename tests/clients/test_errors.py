"""Errors of gateways as the client raises them, and its retries."""

from __future__ import annotations

import msgspec
import outrider_client
import pytest
from outrider.gateway.errors import DeadlinePassed, MethodNotAllowed, TimedOut, TooLarge, UnknownModel, error_answer
from outrider.mesh.errors import ERRORS, DeadlineUnmeetable, OutriderError
from outrider_client import errors
from outrider_client.calls import Attempts, Gateways
from outrider_client.errors import ErrorBody, GatewayError, error_of_answer, error_of_event

_KINDS = {
    400: errors.BadRequestError,
    401: errors.AuthenticationError,
    403: errors.PermissionDeniedError,
    404: errors.NotFoundError,
    405: errors.BadRequestError,
    408: errors.BadRequestError,
    409: errors.ConflictError,
    412: errors.BadRequestError,
    413: errors.BadRequestError,
    429: errors.RateLimitError,
    499: errors.CancelledError,
    500: errors.ServerError,
    503: errors.ServiceUnavailableError,
    504: errors.ServiceUnavailableError,
}


@pytest.mark.parametrize(
    "kind", [*ERRORS, MethodNotAllowed, TimedOut, TooLarge, UnknownModel], ids=lambda k: k.__name__
)
def test_every_error_of_a_gateway_is_one_of_the_tree(kind: type[OutriderError]) -> None:
    body = msgspec.json.encode(error_answer(kind("why", param="place")))
    error = error_of_answer(kind.http_status, body, "r1", "7")
    assert type(error) is _KINDS[kind.http_status]
    assert (error.status, error.type, error.request_id, error.retry_after) == (kind.http_status, kind.type, "r1", 7.0)
    if kind.http_status != 500:
        assert (str(error), error.param) == ("why", "place")


@pytest.mark.parametrize("kind", ERRORS, ids=lambda k: k.__name__)
def test_an_error_in_mid_stream_is_the_same_as_before_it(kind: type[OutriderError]) -> None:
    error = error_of_event(ErrorBody("why", kind.type), "r1")
    assert isinstance(error_of_answer(kind.http_status, b""), type(error))


@pytest.mark.parametrize("kind", [DeadlinePassed, DeadlineUnmeetable])
def test_a_missed_deadline_is_recognized_by_its_code_and_not_retried(kind: type[OutriderError]) -> None:
    body = error_answer(kind("why"))
    error = error_of_answer(kind.http_status, msgspec.json.encode(body), retry_after="0")
    event = error_of_event(ErrorBody("why", kind.type, code=body.error.code), "r1")
    assert type(error) is type(event) is errors.DeadlineError
    with pytest.raises(errors.DeadlineError):
        Attempts(Gateways("http://a"), 5).pause(error)


@pytest.mark.parametrize(("status", "body"), [(502, b"<html>"), (503, b"\xff"), (418, b"{}"), (599, b"")])
def test_an_answer_of_a_proxy_is_an_error_too(status: int, body: bytes) -> None:
    error = error_of_answer(status, body)
    assert str(error) == f"the gateway answered {status}"
    assert isinstance(error, errors.BadRequestError if status < 500 else errors.ServerError)


def test_the_tree_that_is_drawn_is_the_tree_that_is() -> None:
    drawn = {word for word in (errors.__doc__ or "").split() if word.endswith("Error")}
    there = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert drawn == there == {name for name in outrider_client.__all__ if name.endswith("Error")}


def test_retry_after_is_kept_to_and_retries_are_counted() -> None:
    attempts = Attempts(Gateways("http://a"), 2)
    full = error_of_answer(429, b"", retry_after="3")
    assert attempts.pause(full) == 3.0
    assert attempts.pause(error_of_answer(503, b"", retry_after="0")) == 0.0
    with pytest.raises(errors.RateLimitError):
        attempts.pause(full)
    attempts.succeeded()
    assert attempts.pause(full) == 3.0


def test_a_retry_after_above_the_patience_is_raised_at_once() -> None:
    attempts = Attempts(Gateways("http://a"), 5)
    with pytest.raises(errors.RateLimitError) as raised:
        attempts.pause(error_of_answer(429, b"", retry_after="61"))
    assert raised.value.retry_after == 61.0
    assert attempts.pause(error_of_answer(429, b"", retry_after="60")) == 60.0
    assert Attempts(Gateways("http://a"), 5, 3600).pause(error_of_answer(503, b"", retry_after="61")) == 61.0
    with pytest.raises(errors.ServiceUnavailableError):
        Attempts(Gateways("http://a"), 5, 0).pause(error_of_answer(503, b"", retry_after="1"))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 499, 500])
def test_an_error_that_no_retry_can_mend_is_raised_at_once(status: int) -> None:
    with pytest.raises(GatewayError):
        Attempts(Gateways("http://a"), 5).pause(error_of_answer(status, b""))


def test_a_gateway_that_cannot_be_reached_gives_way_to_the_next() -> None:
    gateways, request = (
        Gateways(["http://a/v1/", "http://b"]),
        outrider_client.calls.GatewayRequest("GET", "/v1/models"),
    )
    attempts = Attempts(gateways, 2)
    assert gateways.url(request) == "http://a/v1/models"
    assert attempts.pause(OSError("no")) == 0.0
    assert gateways.url(request) == "http://b/v1/models"
    assert attempts.pause(OSError("no")) > 0
    with pytest.raises(errors.ConnectionFailedError):
        attempts.pause(OSError("no"))
    attempts.succeeded(60)
    for _ in range(9):
        attempts.pause(OSError("no"))


def test_a_request_has_either_a_prompt_or_messages() -> None:
    with outrider_client.Client() as client, pytest.raises(TypeError, match="either a prompt or messages"):
        client.stream()
