"""A stream's template writes the very chunks that `AnswerWriter` writes."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec import UNSET, UnsetType
from outrider.gateway.admission.caller import Caller
from outrider.gateway.api.http.sse import Template, event
from outrider.gateway.api.openai.answers import AnswerWriter, Shape
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.request.models import ServedModel
from outrider.gateway.routing.job import Job
from outrider.v1.sampling_pb2 import SamplingParams, Speculation
from outrider.wire.frames import Frame


@pytest.mark.parametrize("kind", ["chat", "completion"])
@pytest.mark.parametrize("usage", [UNSET, None], ids=["without usage", "with usage at the end"])
def test_an_event_of_a_template_is_that_of_the_chunk(
    kind: Literal["chat", "completion"], usage: UnsetType | None
) -> None:
    job = Job("r", ServedModel("m", "v", 9), [1], SamplingParams(max_tokens=4), Speculation(), Caller())
    record = Record.of([job], created=1, seed=2, lingers=False, shape=b"")
    writer = AnswerWriter(Shape(kind, (), False, usage is None), Key("t", "r"), record)
    assert writer.plain
    template = Template(lambda text: writer.text_chunk(text, usage))
    for place, text in enumerate(["a", ' "b"\n', "\u2028é\x00", "\\"]):
        chunk = writer.chunk(Frame("r", place, [7], [text], [""], None), 0, usage)
        assert chunk is not None
        assert template.event(text, f"r:{place}") == event(chunk, f"r:{place}")
