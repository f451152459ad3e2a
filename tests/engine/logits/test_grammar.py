"""Structured output: always valid, and the same for any guesses."""

from __future__ import annotations

import itertools
import json
import random
import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from outrider.engine.decode.engine import Engine
from outrider.engine.errors import RequestError
from outrider.engine.logits.edits import EditBatch
from outrider.engine.logits.grammar import Grammar, Grammars
from outrider.engine.models.llama import LlamaModel
from outrider.engine.pages.page_table import PageTable
from outrider.engine.requests.output import Finish, Output
from outrider.engine.requests.parameters import GrammarText, SamplingParams
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.scheduling.plan import Limits
from outrider.engine.scheduling.scheduler import Scheduler
from outrider.engine.speculation import Drafter, DrafterContext, DraftTree, MergedTree, Opening
from outrider.engine.speculation.drafters.random_drafter import RandomDrafter
from outrider.engine.text import Tokenizer

from tests.engine.engines import accepted_guesses, bought_guesses, build_engine, outcome_of, run
from tests.engine.masks import bits
from tests.engine.text.makers import byte_fallback, byte_level, word_piece, write
from tests.toy_model import save_toy

EOS, WRONG = 0, 7
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "size": {"type": "integer", "minimum": 0, "maximum": 99},
        "kinds": {"type": "array", "items": {"enum": ["red", "green", None]}, "maxItems": 3},
    },
    "required": ["name", "size", "kinds"],
    "additionalProperties": False,
}
EDITS = SamplingParams(
    repetition_penalty=1.2,
    frequency_penalty=0.3,
    presence_penalty=0.2,
    logit_bias={50: 2.0},
    bad_words=((60,), (61, 62)),
)
GRAMMARS = {
    "schema": GrammarText("json_schema", json.dumps(SCHEMA)),
    "regex": GrammarText("regex", r"[a-c]{2,5}-(é|ü)\d?"),
    "choice": GrammarText("choice", json.dumps(["yes", "no", 'no "way"', "nö"])),
    "lark": GrammarText("context_free", '?start: sum\nsum: NUMBER ("+" NUMBER)~1..3\nNUMBER: /[0-9]{1,3}/\n'),
    "gbnf": GrammarText("context_free", 'root ::= pair{1,3}\npair ::= "(" [a-z] ")"\n'),
}


def fits(kind: str, text: str) -> bool:
    if kind == "schema":
        value = json.loads(text)
        kinds = all(entry in ("red", "green", None) for entry in value["kinds"])
        return kinds and len(value["name"]) <= 6 and 0 <= value["size"] <= 99 and len(value) == 3
    if kind == "choice":
        return text in json.loads(GRAMMARS["choice"].text)
    patterns = {
        "regex": r"[a-c]{2,5}-(é|ü)\d?",
        "lark": r"\d{1,3}(\+\d{1,3}){1,3}",
        "gbnf": r"(\([a-z]\)){1,3}",
    }
    return re.fullmatch(patterns[kind], text) is not None


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, path = byte_level(), tmp_path_factory.mktemp("models")
    save_toy(path, (made.get_vocab_size() // 32 + 1) * 32, context=512)  # whole words of a mask, some ids without text
    config = (path / "config.json").read_text()
    write(path, made)
    (path / "config.json").write_text(config)
    return path


@pytest.fixture(scope="module")
def model(directory: Path) -> LlamaModel:
    return LlamaModel.load(directory, dtype="float32", determinism="strict")


@pytest.fixture(scope="module")
def grammars(directory: Path, model: LlamaModel) -> Grammars:
    return Grammars((directory / "tokenizer.json").read_bytes, model.config.vocab_size, frozenset({EOS}))


Make = Callable[..., Engine]


@pytest.fixture
def make(directory: Path, model: LlamaModel) -> Make:
    def build(*drafters: Drafter, pages: int = 256) -> Engine:
        scheduler = Scheduler(Limits(64, 999, 64, 512, 63, 8, 512), PageTable(pages), b"toy")
        return build_engine(model, Tokenizer.load(directory), scheduler, drafters)

    return build


@pytest.fixture
def wanted(grammars: Grammars, model: LlamaModel) -> list[Request]:
    """Many prompts, temperatures and grammars, some with penalties, bans and log-probabilities."""
    dice, made = random.Random(3), []
    for index in range(50):
        kind = list(GRAMMARS)[index % len(GRAMMARS)]
        parameters = dice.choice([SamplingParams(), SamplingParams(), EDITS])
        made.append(
            Request(
                f"{kind}-{index}",
                "t",
                dice.choices(range(1, model.config.vocab_size), k=dice.randint(1, 20)),
                Sampling(dice.choice([0.0, 0.8, 1.5]), seed=dice.getrandbits(64)),
                200,
                stop_ids=frozenset({EOS}),
                parameters=replace(parameters, logprobs=dice.choice([None, 2])),
                grammar=grammars.compile(GRAMMARS[kind]),
            )
        )
    return made


class Copier(Drafter):
    """Knows the answers, and guesses something else beside each of their tokens."""

    name, context_length = "copier", 512

    def __init__(self, answers: list[list[int]]) -> None:
        self._answers = dict(enumerate(answers, start=1))
        self._spans: dict[int, tuple[int, int]] = {}

    def open(self, session: int, opening: Opening) -> None:
        self._spans[session] = (len(opening.tokens), len(opening.tokens))

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        self._spans[session] = (self._spans[session][0], length + len(tokens))

    def close(self, session: int) -> None:
        self._spans.pop(session, None)

    def draft(self) -> list[tuple[int, DraftTree]]:
        return [(session, self._tree(session, *span)) for session, span in self._spans.items()]

    def _tree(self, session: int, start: int, length: int) -> DraftTree:
        tree = MergedTree()
        for depth, token in enumerate(self._answers[session][length - start :][:6], start=1):
            above = len(tree) - 2 if tree.tokens else -1
            tree.append(token, above, 0.9, depth, 0.9, self.name)
            tree.append(WRONG, above, 0.9, depth, 0.9, self.name)
        return DraftTree(length, tree.tokens, tree.parents, tree.confidences, self.name)


def test_answers_are_what_they_have_to_be_and_the_same_whatever_is_guessed(
    make: Make, model: LlamaModel, wanted: list[Request]
) -> None:
    plain = make()
    alone = {request.id: run(plain, [request])[request.id] for request in wanted}
    for name, frames in alone.items():
        text = "".join(text for frame in frames for text in frame.texts)
        assert frames[-1].finish is Finish.STOP
        assert fits(name.partition("-")[0], text), text
    expected = {name: outcome_of(frames) for name, frames in alone.items()}
    copier = Copier([ids for ids, _, _ in expected.values()])
    for drafter in (RandomDrafter(DrafterContext("", model.config.vocab_size, 512)), copier):
        engine = make(drafter, pages=60)
        assert {name: outcome_of(frames) for name, frames in run(engine, wanted).items()} == expected
    tally = engine.tally
    assert accepted_guesses(engine)["copier"] > 0.5 * tally.tokens
    assert bought_guesses(engine)["copier"] < 1.5 * accepted_guesses(engine)["copier"]


def test_a_structured_answer_goes_on_elsewhere_where_it_was_left(make: Make, wanted: list[Request]) -> None:
    engine = make()
    for cut, request in enumerate(wanted[:20]):
        ids, _, finish = outcome_of(run(engine, [request])[request.id])
        emitted = ids[: min(cut, len(ids) - 1)]
        rest = run(engine, [replace(request, emitted=emitted)])[request.id]
        assert (emitted + outcome_of(rest)[0], outcome_of(rest)[2]) == (ids, finish)


class Forgetful:
    """A grammar that bans nothing behind guesses."""

    failure = None

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar

    def guide(self, tokens: list[int], prompt: int, stop_ids: frozenset[int]) -> Forgetful:
        made = Forgetful(self.grammar)
        made.inner = self.grammar.guide(tokens, prompt, stop_ids)
        return made

    def ready(self) -> bool:
        return True

    def prune(self, guesses: MergedTree) -> MergedTree:
        return self.inner.prune(guesses)

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        self.inner.edit(batch, row, MergedTree())


def test_a_grammar_that_is_forgotten_at_guesses_is_seen(make: Make, wanted: list[Request]) -> None:
    plain = make()
    alone = {request.id: outcome_of(run(plain, [request])[request.id]) for request in wanted}
    engine = make(Copier([ids for ids, _, _ in alone.values()]))
    forgetful = [replace(each, grammar=Forgetful(each.grammar)) for each in wanted]
    assert {name: outcome_of(frames) for name, frames in run(engine, forgetful).items()} != alone


def test_only_guesses_that_the_grammar_allows_are_kept(grammars: Grammars, directory: Path) -> None:
    ids = Tokenizer.load(directory).encode
    a, b, wrong = ids("a")[0], ids("b")[0], ids("z")[0]
    guide = grammars.compile(GrammarText("regex", "(ab|ba)b")).guide([5, 5], 2, frozenset({EOS}))
    tree = MergedTree()
    for token, parent in [(wrong, -1), (a, -1), (a, 1), (b, 1), (b, 0), (b, 3), (EOS, 5), (b, -1), (a, 7)]:
        tree.append(token, parent, 0.5, 1, 0.5, "d")
    kept = guide.prune(tree)
    assert (kept.tokens, kept.parents) == ([a, b, b, b, a], [-1, 0, 1, -1, 3])
    ending = grammars.compile(GrammarText("regex", "(ab|ba)b")).guide([5, 5], 2, frozenset({EOS, b}))
    assert ending.prune(tree).tokens == [a]
    batch = EditBatch(381)
    guide.edit(batch, 4, kept)
    allowed = bits(batch, 10, 381)
    assert allowed[:4] == [None] * 4
    assert [row[a] for row in allowed[4:]] == [True, False, False, False, True, False]
    assert [row[b] for row in allowed[4:]] == [True, True, True, False, False, True]
    assert [row[EOS] for row in allowed[4:]] == [False, False, False, True, False, False]


STRINGS = {"type": "array", "items": {"type": "string", "maxLength": 2}, "minItems": 2, "maxItems": 40}


def mask_of(grammar: Grammar, tokens: list[int]) -> list[bool] | None:
    """What the grammar allows behind ``tokens``, by a matcher that has made no other mask."""
    batch = EditBatch(381)
    grammar.guide(tokens, 0, frozenset({EOS})).edit(batch, 0, MergedTree())
    return bits(batch, 1, 381)[0]


def chain(tree: MergedTree, tokens: Sequence[int], above: int = -1) -> int:
    """Adds ``tokens`` one below the other; returns the last node."""
    for token in tokens:
        tree.append(token, above, 0.5, 1 + (tree.depths[above] if above >= 0 else 0), 0.5, "d")
        above = len(tree) - 1
    return above


def test_a_mask_is_that_of_its_own_place_whatever_was_guessed_before(grammars: Grammars, directory: Path) -> None:
    ids = [token for text in '["a' for token in Tokenizer.load(directory).encode(text)]
    letters = {text: Tokenizer.load(directory).encode(text)[0] for text in '", a]'}
    grammar = grammars.compile(GrammarText("json_schema", json.dumps(STRINGS)))
    guessed, said = [letters[text] for text in '","a" '], [letters[text] for text in '" , ']
    tree = MergedTree()
    chain(tree, guessed)
    guide = grammar.guide(ids, 0, frozenset({EOS}))
    guide.edit(EditBatch(381), 0, tree)
    ids += said
    batch = EditBatch(381)
    guide.edit(batch, 0, MergedTree())
    assert bits(batch, 1, 381)[0] == mask_of(grammar, ids)
    beside = MergedTree()
    chain(beside, guessed)
    chain(beside, said)
    batch = EditBatch(381)
    grammar.guide(ids[:3], 0, frozenset({EOS})).edit(batch, 0, beside)
    assert bits(batch, 1 + len(beside), 381)[-1] == mask_of(grammar, ids)


def test_masks_of_trees_are_those_of_their_paths(grammars: Grammars, directory: Path) -> None:
    dice, compared = random.Random(5), 0
    marks = {Tokenizer.load(directory).encode(text)[0] for text in '", []'}
    for schema in (STRINGS, SCHEMA) * 12:
        grammar, tokens = grammars.compile(GrammarText("json_schema", json.dumps(schema))), list[int]()
        guide = grammar.guide(tokens, 0, frozenset({EOS}))
        for _ in range(8):
            tree = MergedTree()
            for above in [-1] * dice.randint(1, 3):
                for _ in range(dice.randint(1, 7)):
                    allowed = mask_of(grammar, tokens + [tree.tokens[node] for node in path_to(tree, above)])
                    may = [token for token, yes in enumerate(allowed or []) if yes and token != EOS]
                    above = chain(
                        tree, [dice.choice([token for token in may if token in marks] or may or [EOS])], above
                    )
            batch, kept = EditBatch(381), guide.prune(tree)
            guide.edit(batch, 0, kept)
            for node, mask in enumerate(bits(batch, 1 + len(kept), 381), start=-1):
                assert mask == mask_of(grammar, tokens + [kept.tokens[at] for at in path_to(kept, node)])
                compared += 1
            if len(kept):
                tokens += [kept.tokens[at] for at in path_to(kept, dice.randrange(len(kept)))]
    assert compared > 1000


def path_to(tree: MergedTree, node: int) -> list[int]:
    """The nodes from the top down to ``node``; none for -1."""
    return [] if node < 0 else [*path_to(tree, tree.parents[node]), node]


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        (GrammarText("json_schema", '{"type": "nothing"}'), "cannot be compiled"),
        (GrammarText("json_schema", "{"), "cannot be compiled"),
        (GrammarText("regex", "("), "unclosed group"),
        (GrammarText("context_free", "start: nobody"), "nobody"),
        (GrammarText("context_free", 'root ::= ("a"'), "Expected ')'"),
        (GrammarText("regex", "a" * ((256 << 10) + 1)), "over the limit of 262144"),
    ],
)
def test_a_grammar_that_cannot_be_compiled_is_refused(grammars: Grammars, grammar: GrammarText, message: str) -> None:
    with pytest.raises(RequestError, match=re.escape(message)) as caught:
        grammars.compile(grammar)
    assert caught.value.param == "grammar"


def test_a_model_that_cannot_be_guided_refuses_a_grammar(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammar = GRAMMARS["choice"]
    with pytest.raises(RequestError, match="end-of-text id"):
        Grammars((directory / "tokenizer.json").read_bytes, 381, frozenset()).compile(grammar)
    write(tmp_path, word_piece())
    with pytest.raises(RequestError, match="another kind of tokenizer"):
        Grammars((tmp_path / "tokenizer.json").read_bytes, 200, frozenset({1})).compile(grammar)
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(RequestError, match="not installed"):
        Grammars((directory / "tokenizer.json").read_bytes, 381, frozenset({EOS})).compile(grammar)


def test_a_grammar_knows_the_spaces_and_bytes_of_sentencepiece(tmp_path: Path) -> None:
    made = byte_fallback()
    write(tmp_path, made)
    guide = (
        Grammars((tmp_path / "tokenizer.json").read_bytes, made.get_vocab_size(), frozenset({2}))
        .compile(GrammarText("regex", " ?é!"))
        .guide([], 0, frozenset({2}))
    )
    ids = Tokenizer.load(tmp_path).encode("é!", add_special=False)
    tree = MergedTree()
    for depth, token in enumerate(ids, start=1):
        tree.append(token, depth - 2, 0.5, depth, 0.5, "d")
    assert guide.prune(tree).tokens == ids


def test_a_grammar_that_becomes_too_complex_ends_its_request_and_no_other(
    make: Make, grammars: Grammars, model: LlamaModel
) -> None:
    deep = GrammarText("regex", "x{3}((a{1,100}b?){1,100}c?){1,100}")
    plain = Request("plain", "t", [5, 6], Sampling(0.0, seed=1), 20)
    alone = outcome_of(run(make(), [plain])["plain"])
    guided = replace(plain, id="deep", max_tokens=400, stop_ids=frozenset({EOS}), grammar=grammars.compile(deep))
    said = run(make(RandomDrafter(DrafterContext("", model.config.vocab_size, 512))), [plain, guided])
    assert outcome_of(said["plain"]) == alone
    end = said["deep"][-1]
    assert end.finish is Finish.REFUSED
    assert end.error is not None
    assert end.error.startswith("the grammar is too complex to be followed: lexer error: too many expressions")
    assert grammars.find(deep) is None


def test_a_grammar_that_is_too_complex_at_a_guess_lets_nothing_be_drawn_from_there(
    grammars: Grammars, directory: Path
) -> None:
    ids = Tokenizer.load(directory).encode
    a, b = ids("a")[0], ids("b")[0]
    tree = MergedTree()
    for token, parent in [(b, -1), (a, 0), (a, -1)]:
        tree.append(token, parent, 0.5, 1, 0.5, "d")
    tokens = [5]
    message = GrammarText("regex", "aac*|ba{1000000}")
    guide = grammars.compile(message).guide(tokens, 1, frozenset({EOS}))
    first, second = EditBatch(381), EditBatch(381)
    guide.edit(first, 0, tree)
    assert [any(row) for row in bits(first, 4, 381)] == [True, True, False, False]
    tokens.append(a)
    assert len(guide.prune(tree)) == 0
    guide.edit(second, 0, MergedTree())
    assert guide.failure is not None
    anew = grammars.compile(message).guide(tokens, 1, frozenset({EOS}))
    anew.edit(second, 1, MergedTree())
    hopeless, may = bits(second, 2, 381)
    assert not any(hopeless)
    assert may[a]


def test_steps_of_others_go_on_while_the_mask_of_a_slow_grammar_is_computed(
    make: Make, grammars: Grammars, directory: Path, model: LlamaModel
) -> None:
    seconds, go_on = itertools.count(step=0.04), threading.Event()

    def clock() -> float:
        if threading.current_thread() is not threading.main_thread():
            assert go_on.wait(60)
        return next(seconds)

    slow = Grammars((directory / "tokenizer.json").read_bytes, model.config.vocab_size, frozenset({EOS}), clock)
    plain = Request("plain", "t", [5, 6], Sampling(0.0, seed=1), 40)
    guided = Request("slow", "u", [5, 7], Sampling(0.8, seed=2), 12, stop_ids=frozenset({EOS}))
    message = GrammarText("regex", "[a-d]{30}")
    expected = run(make(), [plain, replace(guided, grammar=grammars.compile(message))])
    engine, frames = make(), dict[str, list[Output]](plain=[], slow=[])
    for request in (plain, replace(guided, grammar=slow.compile(message))):
        engine.submit(request)
    while engine.busy:
        for request, frame in engine.step().outputs:
            frames[request.id].append(frame)
            if request.id == "plain" and frame.finish is not None:
                assert len([token for each in frames["slow"] for token in each.tokens]) < 3
                go_on.set()
    for name in ("plain", "slow"):
        assert outcome_of(frames[name]) == outcome_of(expected[name])


def test_guesses_are_as_many_as_there_is_time_for_their_masks(directory: Path) -> None:
    seconds = itertools.count(step=0.004)
    slow = Grammars((directory / "tokenizer.json").read_bytes, 381, frozenset({EOS}), clock=lambda: next(seconds))
    guide = slow.compile(GrammarText("regex", "a{9}")).guide([5], 1, frozenset({EOS}))
    tree, a = MergedTree(), Tokenizer.load(directory).encode("a")[0]
    for depth in range(1, 9):
        tree.append(a, depth - 2, 0.5, depth, 0.5, "d")
    assert guide.prune(tree) is tree
    for _ in range(7):
        guide.edit(EditBatch(381), 0, MergedTree())
    kept = guide.prune(tree)
    assert kept is tree
    for _ in range(99):
        guide.edit(EditBatch(381), 0, MergedTree())
    assert len(guide.prune(tree)) == 0, "now the masks are another thread's"
