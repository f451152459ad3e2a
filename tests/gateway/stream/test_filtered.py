"""Filters read frames token by token, however frames divide the tokens."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from outrider.gateway.admission.caller import Caller
from outrider.gateway.filters.chain import Chain, Setup
from outrider.gateway.filters.filter import Passed
from outrider.gateway.filters.patterns import patterns
from outrider.gateway.ledger.record import Record
from outrider.gateway.request.models import ServedModel
from outrider.gateway.routing.job import Job
from outrider.gateway.stream.answer_cache import CachedStream
from outrider.gateway.stream.filtered import FilteredFrames, filtered
from outrider.gateway.stream.reassembly import split
from outrider.gateway.stream.replay import until_filtered
from outrider.gateway.tool_calls.answer_reader import AnswerReader
from outrider.mesh.errors import Unavailable
from outrider.v1.sampling_pb2 import SamplingParams, Speculation
from outrider.wire.calls import CallStyle, Mark
from outrider.wire.frames import WITHHELD, Alternative, Draft, Finish, Frame, Likelihood, Usage

MARK = 9
STYLE = CallStyle(marks=(Mark("<tool_call>", MARK, True),))
USAGE = Usage(2, 4)


def job(style: CallStyle = STYLE, *, calls: bool = False) -> Job:
    served, speculation = ServedModel("m", "v", 64, style), Speculation()
    sampling = SamplingParams(max_tokens=9)
    return Job("r", served, [1, 2], sampling, speculation, Caller(), filters=("guard",), calls=calls)


def frame(texts: Sequence[str], finish: Finish | None = Finish.STOP, tokens: Sequence[int] = ()) -> Frame:
    ids = list(tokens) or list(range(10, 10 + len(texts)))
    guessed_by = ["", *["ngram"] * len(texts)][: len(texts)]
    return Frame("r", 0, ids, list(texts), guessed_by, finish, USAGE if finish else None)


def guard(**options: str) -> Chain:
    return Chain([Setup("guard", patterns({"secrets": "end"} | options), 5.0, fail_open=False)])


async def shown(*frames: Frame, calls: bool = False) -> list[Frame]:
    reading = FilteredFrames(job(calls=calls), guard())
    return [await reading.take(each) for each in frames]


async def test_a_text_is_that_of_the_token_behind_which_it_is_decided() -> None:
    (one,) = await shown(frame(["Mail bob", "@exa", "mple.org", " or a", "nn"]))
    assert one.texts == ["Mail ", "", "", "[email] or ", "ann"]
    assert (one.tokens, one.finish, one.usage) == ([WITHHELD] * 5, Finish.STOP, USAGE)


THOUGHT = ["Ask bob", "@exa", "mple.or", "Mail ann", "@exa", "mple.org", "!"]


@given(st.lists(st.integers(0, 7), max_size=3))
async def test_what_is_held_of_a_thought_does_not_become_the_answers(cuts: list[int]) -> None:
    whole = msgspec.structs.replace(frame(THOUGHT), thought=3)
    parts = []
    for cut in sorted(set(cuts)):
        head, whole = split(whole, cut - whole.first_index)
        parts.append(head)
    frames = await shown(*parts, whole)
    told = [text for each in frames for text in each.texts[: each.thought]]
    said = [text for each in frames for text in each.texts[each.thought :]]
    assert ("".join(told), "".join(said)) == ("Ask [email]", "Mail [email]!")
    assert sum(each.thought for each in frames) == 4


@given(st.lists(st.integers(0, 5), max_size=3))
async def test_how_frames_divide_the_tokens_changes_nothing(cuts: list[int]) -> None:
    rest, parts = frame(["Mail a", "@b.co", ", use", " sk-abcdefghij", "klmnopqrst", "uv, then"]), list[Frame]()
    for cut in sorted(cuts):
        head, rest = split(rest, cut - rest.first_index)
        parts.append(head)
    taken = []
    for each in await shown(*parts, rest):
        taken += each.texts
        if each.finish is not None:
            assert each.finish is Finish.FILTERED
            assert each.usage == Usage(
                2, 6, accepted_tokens=5, steps=len([part for part in [*parts, rest] if part.tokens])
            )
            break
    assert taken == ["Mail ", "", "[email], ", "use ", "", ""]


async def test_nothing_tells_of_the_tokens_behind_a_text() -> None:
    told = frame(["a", "b"])
    likely = [Likelihood(-1.0, b"secret", [Alternative(3, -2.0, b"secret")])] * 2
    draft = Draft(0, [3], [b"secret"], [-1], ["ngram"], [])
    told = msgspec.structs.replace(told, likelihoods=likely, drafts=[draft], verifier="v")
    (one,) = await shown(told)
    assert one == msgspec.structs.replace(told, tokens=[WITHHELD] * 2, texts=["", "ab"], likelihoods=None, drafts=None)


async def test_an_end_without_a_token_shows_what_was_held() -> None:
    first, last = await shown(frame(["to bob"], None), frame([]))
    assert (first.texts, last.tokens, last.texts) == (["to "], [], ["bob"])
    reader = AnswerReader(STYLE, ["f"])
    assert "".join(piece.text for each in (first, last) for piece in reader.take(each)) == "to bob"


async def test_where_calls_are_read_a_mark_is_text_at_its_place() -> None:
    texts = ["Ask bob", "", '\n{"name": "f", "arguments": {"to": "a@b.co"}}', ""]
    (one,) = await shown(frame(texts, tokens=[1, MARK, 2, 3]), calls=True)
    assert one.tokens == [WITHHELD] * 4
    assert "".join(one.texts) == 'Ask bob<tool_call>\n{"name": "f", "arguments": {"to": "[email]"}}'
    pieces = AnswerReader(STYLE, ["f"]).take(one)
    assert [(piece.text, piece.place) for piece in pieces] == [("Ask bob", None), ('{"to": "[email]"}', 0)]


@pytest.mark.parametrize("token", [MARK, MARK + 1], ids=["a mark of calls", "another token without text"])
async def test_a_token_without_text_divides_no_text_where_no_calls_are_read(token: int) -> None:
    (one,) = await shown(frame(["Mail bob@exa", "", "mple.org now"], tokens=[1, token, 2]))
    assert ("".join(one.texts), one.tokens) == ("Mail [email] now", [WITHHELD] * 3)
    (ended,) = await shown(frame(["Use sk-abcdefghij", "", "klmnopqrstuv, then"], tokens=[1, token, 2]))
    assert ("".join(ended.texts), ended.finish) == ("Use ", Finish.FILTERED)


def test_a_resumed_answer_is_filtered_as_at_first() -> None:
    for calls in (False, True):
        record = Record.of([job(calls=calls)], created=1, seed=2, lingers=False, shape=b"")
        (resumed,) = Record.decode(record.encode()).jobs("r", Caller())
        assert (resumed.calls, resumed.filters) == (calls, ("guard",))


async def test_what_a_service_is_asked_about_has_the_marks_that_readers_see() -> None:
    asked: list[str] = []

    class Asking:
        held = ""

        def feed(self, text: str) -> Passed:
            asked.append(text)
            return Passed(text)

        def end(self) -> Passed:
            asked.append("END")
            return Passed()

    for calls, seen in ((False, "a b"), (True, "a<tool_call> b")):
        asked.clear()
        reading = FilteredFrames(job(calls=calls), Chain([Setup("asking", Asking, 5.0, fail_open=False)]))
        await reading.take(frame(["a", "", " b"], tokens=[1, MARK, 2]))
        assert "".join(asked) == seen + "END"


async def test_the_log_ends_where_a_filter_ended_the_answer() -> None:
    mark = Frame("r", 3, [], [], [], Finish.FILTERED, USAGE)
    stop = Frame("r", 2, [], [], [], Finish.CANCELLED)
    whole = frame(["a", "b", "c", "d"], Finish.LENGTH)
    first, rest = split(whole, 2)
    ended = until_filtered([first, rest, stop, mark])
    assert [(each.first_index, each.texts, each.finish) for each in ended] == [
        (0, ["a", "b"], None),
        (2, ["c"], None),
        (3, [], Finish.FILTERED),
    ]
    last = (await shown(*ended))[-1]
    assert (last.finish, last.texts, last.usage) == (Finish.FILTERED, [], Usage(2, 3, accepted_tokens=2, steps=2))
    assert until_filtered([first, rest]) == [first, rest]


class _End:
    """Takes the frames by which an answer ends for all its readers."""

    def __init__(self) -> None:
        self.frames: list[tuple[str, Frame]] = []

    def __call__(self, subject: str, frame: Frame) -> None:
        self.frames.append((subject, frame))


class _Broken:
    held = ""

    def feed(self, text: str) -> Passed:
        raise ValueError("broken")

    def end(self) -> Passed:
        return Passed()


async def test_a_stream_whose_filter_fails_shows_nothing_and_may_be_resumed() -> None:
    stream = CachedStream(job(), [frame(["a"])])
    frames = filtered(stream, Chain([Setup("broken", _Broken, 5.0, fail_open=False)]), _End())
    await stream.open()
    with pytest.raises(Unavailable, match="a text could not be filtered") as caught:
        await anext(frames)
    assert stream.failed is caught.value


async def test_where_a_filter_ends_an_answer_its_cost_ends_too_and_all_readers_hear_of_it() -> None:
    end = _End()
    stream = CachedStream(job(), [frame(["Use", " sk-abcdefghijklmnopqrst", "u", "v", "w"])])
    (frames,) = [frames async for frames in filtered(stream, guard(), end)]
    assert frames[-1].finish is Finish.FILTERED
    assert (stream.finished, stream.spent) == (True, 5)
    stream = CachedStream(job(), [frame(["Use AKIAABCDEFGHIJKLMNOP", " ", "more"])])
    (frames,) = [frames async for frames in filtered(stream, guard(), end)]
    assert (frames[-1].usage, stream.spent) == (Usage(2, 2, accepted_tokens=1, steps=1), 2)
    assert end.frames[-1][0] == stream.job.subject
    assert (end.frames[-1][1].finish, end.frames[-1][1].first_index) == (Finish.FILTERED, 2)
