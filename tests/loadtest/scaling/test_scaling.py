"""The pods that scalers ask for, by the rules of KEDA and of the HorizontalPodAutoscaler."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from outrider.loadtest.scaling.plot import save
from outrider.loadtest.scaling.prometheus import Span, samples
from outrider.loadtest.scaling.replicas import replay
from outrider.loadtest.scaling.scalers import Pace, Scaler, Trigger, read

UP, DOWN = Pace(4, 60, 0), Pace(1, 60, 300)
REQUESTS = Trigger("requests", "a", 48, 0)
KV = Trigger("kv", "b", 0.8, 1e9)
POOL = Scaler("pool", 0, 8, 300, UP, DOWN, (REQUESTS, KV))
ONE = Scaler("one", 1, 8, 300, UP, DOWN, (REQUESTS,))
STEP = 15.0


def pods(scaler: Scaler, requests: list[float], begin: int, kv: float = 0.0) -> list[int]:
    """The pods after each of the sums, which are `STEP` seconds apart."""
    course = [(number * STEP, {"requests": value, "kv": kv}) for number, value in enumerate(requests)]
    return [moment.pods for moment in replay(scaler, course, begin)]


def test_the_pods_are_the_sum_by_the_target_rounded_up() -> None:
    assert pods(ONE, [60, 110, 170], 1) == [2, 3, 4]


def test_a_sum_near_the_target_changes_nothing() -> None:
    assert pods(ONE, [105, 106], 2) == [2, 3]


def test_the_trigger_that_asks_for_most_decides() -> None:
    assert pods(POOL, [10], 1, kv=2.0) == [3]


def test_pods_stay_between_their_bounds() -> None:
    assert pods(ONE, [0] * 100, 1)[-1] == 1
    assert pods(ONE, [100_000] * 20, 1)[-1] == 8


def test_at_most_so_many_pods_are_added_in_a_period() -> None:
    assert pods(ONE, [48 * 8] * 6, 1) == [5, 5, 5, 5, 8, 8]


def test_pods_go_only_after_the_window_and_one_in_a_period() -> None:
    course = pods(ONE, [48 * 4] + [48] * 40, 4)
    assert course[:21] == [4] * 21
    assert course[21:31] == [3] * 4 + [2] * 4 + [1] * 2


def test_the_first_request_starts_a_pod_and_the_last_pod_ends_after_the_cooldown() -> None:
    course = pods(POOL, [0, 1] + [0] * 25, 0, kv=0.1)
    assert course[:3] == [0, 1, 1]
    assert (course[20], course[21]) == (1, 0)


@pytest.fixture
def url() -> Iterator[str]:
    """A server that answers range queries as Prometheus does; the query is the series that it returns."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)["query"][0]
            good = {"status": "success", "data": {"result": [{"values": each} for each in json.loads(query)]}}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(good).encode())

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def scaler_of(query: object) -> Scaler:
    return Scaler("one", 1, 8, 300, UP, DOWN, (Trigger("requests", json.dumps(query), 48),))


def test_a_time_without_a_value_counts_as_nothing(url: str) -> None:
    found = samples(url, scaler_of([[[100.0, "7"], [115.0, "NaN"]]]), Span(100.0, 130.0, STEP))
    assert found == [(100.0, {"requests": 7.0}), (115.0, {"requests": 0.0}), (130.0, {"requests": 0.0})]


def test_times_that_prometheus_rounds_to_milliseconds_are_those_that_were_asked_for(url: str) -> None:
    began = 100.00042
    found = samples(url, scaler_of([[[100.0, "7"], [115.0, "8"]]]), Span(began, began + STEP, STEP))
    assert found == [(began, {"requests": 7.0}), (began + STEP, {"requests": 8.0})]


def test_a_query_with_several_series_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="2 series"):
        samples(url, scaler_of([[], []]), Span(100.0, 130.0, STEP))


def test_a_file_without_scalers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(yaml.safe_dump({"kind": "Service"}))
    with pytest.raises(ValueError, match="holds no ScaledObject"):
        read(tmp_path / "all.yaml")


def test_the_course_is_drawn(tmp_path: Path) -> None:
    save({"one": replay(ONE, [(0.0, {"requests": 50.0}), (STEP, {"requests": 0.0})], 1)}, tmp_path / "out" / "a.png")
    assert (tmp_path / "out" / "a.png").read_bytes().startswith(b"\x89PNG")
