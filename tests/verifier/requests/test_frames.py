"""Outputs of the engine as frames of the wire."""

from __future__ import annotations

from outrider.engine.requests.output import Alternative, Draft, Finish, Likelihood, Output, Usage
from outrider.verifier.requests.conversion import frame
from outrider.wire import frames
from outrider.wire.frames import decode_frame, encode_frame


def test_an_output_comes_back_from_the_wire_as_it_was() -> None:
    likelihoods = [Likelihood(None, b"a", []), Likelihood(-0.5, b"b", [Alternative(4, -0.5, b"b")])]
    draft = Draft(3, [5, 6], [b"c", b"d"], [-1, 0], ["ngram", "suffix"], [0])
    usage = Usage(1, 2, 3, 4, 5, 6, True, 7, [8, 9], (10, 11))
    output = Output("r", 3, [4, 5], ["x", "y"], ["", "ngram"], Finish.ERROR, usage, "why", likelihoods, [draft])
    read = decode_frame(encode_frame(frame(output, "verifier-1")))
    assert read == frames.Frame(
        "r",
        3,
        [4, 5],
        ["x", "y"],
        ["", "ngram"],
        frames.Finish.ERROR,
        frames.Usage(1, 2, 3, 4, 5, 6, True, 7, [8, 9], (10, 11)),
        "why",
        [frames.Likelihood(None, b"a", []), frames.Likelihood(-0.5, b"b", [frames.Alternative(4, -0.5, b"b")])],
        "verifier-1",
        [frames.Draft(3, [5, 6], [b"c", b"d"], [-1, 0], ["ngram", "suffix"], [0])],
    )


def test_only_the_last_frame_names_the_verifier() -> None:
    assert frame(Output("r", 0, [4], ["x"], [""]), "verifier-1") == frames.Frame("r", 0, [4], ["x"], [""])
    assert frame(Output("r", 0, [4], ["x"], [""], finish=Finish.STOP), "verifier-1").verifier == "verifier-1"


def test_every_way_to_end_is_one_of_the_wire() -> None:
    assert {str(finish) for finish in Finish} <= {str(finish) for finish in frames.Finish}
