"""The compiled decoder agrees with other ways to run a model, and is strict, at every level of instructions."""

from __future__ import annotations

import gc
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.engine.models import native
from outrider.engine.models.llama import LlamaModel, ModelError
from outrider.engine.models.step_threads import StepThreads
from outrider.kernels import kv_compact as kv_compact_module
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.kv_compact import Kept, kv_compact
from outrider.kernels.kv_quant import reference as kv_quant
from outrider.kernels.philox import cpu, reference
from outrider.kernels.pool import KvPool
from outrider.native import compiler, decoder, moves, variates
from outrider.native import library as loading
from outrider.native.levels import LEVELS, Level, supported_levels
from outrider.native.library import Library, NativeUnavailable, ffi

from tests.engine.models.checkpoints import FAMILIES, SHAPE, VOCABULARY, tokens
from tests.engine.models.runs import PAGE_SIZE, chunks, step, whole

Load = Callable[..., LlamaModel]

_ABLE = supported_levels()
_PAIRS = next(level for level in LEVELS if level.name == "avx512bf16")
_TILES = Path(__file__).parent / "tiles.h"
_EMULATED = Level(
    "tiles",
    (*_PAIRS.flags, "-D__AMX_BF16__", "-include", str(_TILES), f"-DTILES={zlib.crc32(_TILES.read_bytes())}"),
    _PAIRS.needs,
)
_TRIED = [_ABLE[0], *(level for level in _ABLE[1:] if level.name in ("avx512bf16", "avx2"))]
if _ABLE[0].name == "avx512bf16":
    _TRIED.append(_EMULATED)
_LENGTH = 150
_PAGE_SIZES = (1, 6, 8, 16, 16, 48)
_WIDE = {"hidden_size": 256, "intermediate_size": 208, "num_attention_heads": 4, "head_dim": 64}
_KINDS = [("float32", "auto"), ("float32", "int8"), ("bfloat16", "auto"), ("bfloat16", "float32"), ("bfloat16", "int8")]
_tries = settings(max_examples=10, deadline=None)


@pytest.fixture(scope="module", params=_TRIED, ids=lambda level: level.name)
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    """The library of each level in place of the machine's best."""
    loaded = loading.load(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "library", lambda: loaded)
        yield loaded


def _save(directory: Path, family: str = "llama 3", **changes: Any) -> Any:
    config_class, model_class, fields = FAMILIES[family]
    torch.manual_seed(1)
    model = model_class(config_class(**SHAPE | fields | {"intermediate_size": 96, "head_dim": 16} | changes)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * (0.3 if weight.ndim == 1 else 0.1))
    model.save_pretrained(directory)
    return model


@pytest.fixture(scope="module")
def load(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Loads a model of four heads of 64 over two on the compiled decoder."""
    directories: dict[str, Path] = {}

    def make(dtype: str = "float32", threads: int = 1, kv_dtype: str = "auto", family: str = "llama 3") -> LlamaModel:
        if family not in directories:
            directories[family] = tmp_path_factory.mktemp("wide")
            _save(directories[family], family, **_WIDE)
        directory, before = directories[family], torch.get_num_threads()
        torch.set_num_threads(threads)
        model = LlamaModel.load(directory, dtype=dtype, determinism="strict", kv_dtype=kv_dtype)
        torch.set_num_threads(before)
        assert isinstance(model._forward, decoder.NativeDecoder)
        return model

    return make


@pytest.mark.parametrize("family", FAMILIES)
def test_the_compiled_decoder_agrees_with_transformers_for_every_family(
    library: Library, family: str, tmp_path: Path
) -> None:
    theirs = _save(tmp_path, family)
    ours = LlamaModel.load(tmp_path, dtype="float32")
    assert isinstance(ours._forward, decoder.NativeDecoder)
    ids = tokens(_LENGTH)
    with torch.inference_mode():
        expected = theirs(ids[None]).logits[0]
    torch.testing.assert_close(whole(ours, ids), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("stored", ["bfloat16", "float32", "float16"])
def test_auto_keeps_the_dtype_of_the_checkpoint(library: Library, stored: str, tmp_path: Path) -> None:
    _save(tmp_path, **_WIDE).to(getattr(torch, stored)).save_pretrained(tmp_path)
    ours = LlamaModel.load(tmp_path)
    assert isinstance(ours._forward, decoder.NativeDecoder)
    assert ours.dtype == getattr(torch, stored)


@pytest.mark.parametrize(
    ("family", "shape"),
    [
        ("llama 3", _WIDE),
        ("llama 3", _WIDE | {"head_dim": 16}),
        ("llama 3", _WIDE | {"head_dim": 96, "num_key_value_heads": 1}),
        ("llama 3", {"num_key_value_heads": 6, "head_dim": 32}),
        ("gemma 3", _WIDE),
        ("mistral with a window", _WIDE),
    ],
    ids=["64", "16", "96 of one", "32, no group", "gemma", "a window"],
)
def test_bfloat16_is_as_near_as_an_operator_at_a_time(
    library: Library, family: str, shape: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = _save(tmp_path, family, **shape).to(torch.bfloat16).float()
    ours = LlamaModel.load(tmp_path, dtype="bfloat16")
    assert isinstance(ours._forward, decoder.NativeDecoder)
    monkeypatch.setattr(native, "choice", lambda: "torch")
    eager = LlamaModel.load(tmp_path, dtype="bfloat16")
    ids = tokens(_LENGTH)
    with torch.inference_mode():
        expected = theirs(ids[None]).logits[0]
    off, allowed = ((whole(model, ids) - expected).abs().mean() for model in (ours, eager))
    assert off < 1.3 * allowed


def test_a_model_changes_its_threads_between_steps_and_not_its_bits(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "SHARED", 0)
    model, ids = load("bfloat16", 1), tokens(_LENGTH)
    gc.collect()
    step_threads, alone = StepThreads(model), _turns().keys()
    expected = whole(model, ids)
    assert (step_threads.threads, _turns().keys()) == (1, alone)
    for threads, more in ((3, 2), (2, 3), (3, 3), (1, 3)):
        step_threads.set(threads)
        before = _turns()
        assert (step_threads.threads, len(before) - len(alone)) == (threads, more)
        assert torch.equal(whole(model, ids), expected)
        after = _turns()
        assert sum(after[thread] > turns for thread, turns in before.items() if thread not in alone) == threads - 1
    del step_threads, model
    gc.collect()
    assert _turns().keys() == alone


def _turns() -> dict[str, int]:
    """Number of times that each other thread of this process ran on a processor; returns when all of them wait."""
    others = [each for each in Path("/proc/self/task").iterdir() if each.name != str(threading.get_native_id())]
    while any((each / "stat").read_text().rpartition(")")[2].split()[0] == "R" for each in others):
        os.sched_yield()
    return {each.name: int((each / "schedstat").read_text().split()[2]) for each in others}


@pytest.mark.parametrize(
    ("dtype", "kv_dtype", "threads", "family"),
    [
        *((*kind, 1, "llama 3") for kind in _KINDS),
        ("bfloat16", "auto", 3, "llama 3"),
        ("float32", "auto", 1, "gemma 3"),
        ("float32", "int8", 1, "gemma 3"),
        ("bfloat16", "auto", 2, "gemma 3"),
        ("bfloat16", "int8", 2, "gemma 3"),
        ("float32", "auto", 2, "mixtral"),
        ("bfloat16", "auto", 1, "qwen 3 with experts"),
    ],
)
def test_a_row_has_the_same_bits_however_it_comes(
    load: Load, dtype: str, kv_dtype: str, threads: int, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = tokens(_LENGTH)
    expected = whole(load(dtype, 1, kv_dtype, family), ids)
    monkeypatch.setattr(decoder, "SHARED", 0)
    model = load(dtype, threads, kv_dtype, family)

    @_tries
    @given(st.randoms(use_true_random=False))
    def tried(random: Any) -> None:
        size = random.choice(_PAGE_SIZES)
        pool = model.new_pool(2 * 480 // size, size)
        _poison(pool)
        pages, free = random.sample(range(480 // size), 480 // size), range(480 // size, 2 * 480 // size)
        at = random.randrange(1, 100)
        lengths = [*_parts(random, at)]
        logits = chunks(model, pool, ids[:at], lengths, pages)
        assert torch.equal(logits, expected[:at])
        nodes, parents, spine = _bushy(random, ids, at, random.randrange(1, 20))
        other = SequenceRows(9, 0, free)
        parts = [(tokens(9, 5), other), (torch.tensor(nodes), SequenceRows(len(nodes), at, pages, parents))]
        tree = step(model, pool, parts)[1]
        assert torch.equal(tree[spine], expected[at : at + len(spine)])

    tried()


@pytest.mark.parametrize(("dtype", "head_dim"), [("float32", 64), ("bfloat16", 64), ("bfloat16", 80)])
def test_pages_are_narrow_where_pairs_are_multiplied(
    library: Library, request: pytest.FixtureRequest, dtype: str, head_dim: int, tmp_path: Path
) -> None:
    level = request.node.callspec.params["library"].name
    _save(tmp_path, **_WIDE | {"head_dim": head_dim})
    pool = LlamaModel.load(tmp_path, dtype=dtype).new_pool(1, PAGE_SIZE)
    narrow = level in ("amx", "tiles", "avx512bf16") and (dtype, head_dim) == ("bfloat16", 64)
    assert pool.dtype == (torch.bfloat16 if narrow else torch.float32)


@pytest.mark.parametrize("size", [6, 16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_quants_and_scales_are_those_of_the_definition(load: Load, dtype: str, size: int) -> None:
    ids, pools = tokens(48), []
    for kv_dtype in ("float32", "int8"):
        model = load(dtype, 1, kv_dtype)
        pools.append(model.new_pool(48 // size, size))
        chunks(model, pools[-1], ids, [48], range(48 // size))
    plain, coded = pools
    plain.data[0, :, 0] *= _key_factors(model, 0)
    quants, scales = kv_quant.quantize(plain.data[0], torch.int8)
    assert coded.scales is not None
    torch.testing.assert_close(coded.scales[0], scales, rtol=1e-5, atol=0)
    apart = (_unpacked(coded, 0).short() - quants.short()).abs()  # factors come before the rotation, and round there
    assert apart.max() <= 1
    assert apart.float().mean() < 0.001


def _key_factors(model: LlamaModel, layer: int) -> torch.Tensor:
    """The factors by which a model with balanced keys multiplies them: [kv_heads, head_dim]."""
    assert model.compiled is not None
    config, held = model.config, model.compiled.model.layer[layer].key_balance
    size = 4 * (config.heads + config.kv_heads) * config.head_dim
    all_heads = torch.frombuffer(bytearray(ffi.buffer(held, size)), dtype=torch.float32).view(-1, config.head_dim)
    return all_heads[config.heads :]


def _unpacked(pool: KvPool, layer: int) -> torch.Tensor:
    """A layer's [slots, 2, kv_heads, head_dim]."""
    if not pool.packed:
        return pool.data[layer]
    size, heads, dim = min(pool.page_size & -pool.page_size, 16), pool.kv_heads, pool.head_dim
    blocks = pool.data[layer].reshape(-1, heads, 2, dim * size)
    keys = blocks[:, :, 0].reshape(-1, heads, dim // 2, size, 2).permute(0, 3, 1, 2, 4).reshape(-1, heads, dim)
    values = blocks[:, :, 1].reshape(-1, heads, size // 2, dim, 2).permute(0, 2, 4, 1, 3).reshape(-1, heads, dim)
    return torch.stack([keys, values], 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attention_over_codes_is_that_over_the_values_they_stand_for(load: Load, dtype: str) -> None:
    ids, pages = tokens(60), range(4)
    coded, plain = load(dtype, 1, "int8"), load(dtype, 1, "float32")
    pool, values = coded.new_pool(4, 16), plain.new_pool(4, 16)
    chunks(coded, pool, ids[:50], [50], pages)
    assert pool.scales is not None
    for layer in range(coded.config.layers):
        values.data[layer] = kv_quant.dequantize(_unpacked(pool, layer), pool.scales[layer])
        values.data[layer, :, 0] /= _key_factors(coded, layer)
    parts = [(ids[50:51], SequenceRows(1, 50, pages))]
    got, expected = step(coded, pool, parts)[0], step(plain, values, parts)[0]
    loose = 0.03 if dtype == "bfloat16" else 0.01  # the new token's own quants
    torch.testing.assert_close(got, expected, rtol=loose, atol=loose * expected.abs().max().item())


def test_large_biases_of_keys_cost_little_in_integers(library: Library, tmp_path: Path) -> None:
    theirs = _save(tmp_path, "qwen 2", **_WIDE)
    with torch.no_grad():
        for layer in theirs.model.layers:
            layer.self_attn.k_proj.bias[9::32].add_(100.0)
    theirs.save_pretrained(tmp_path)
    ids = tokens(_LENGTH)
    expected, found = (
        whole(LlamaModel.load(tmp_path, dtype="float32", kv_dtype=kv_dtype), ids).log_softmax(-1)
        for kv_dtype in ("float32", "int8")
    )
    divergence = (expected.exp() * (expected - found)).sum(-1).mean()
    assert 0 < divergence < 0.05  # without factors it is 0.5


def test_nodes_of_earlier_steps_are_seen(load: Load) -> None:
    ids, pages = tokens(60), range(20)
    model = load("bfloat16")
    expected = whole(model, ids)
    pool = model.new_pool(20, PAGE_SIZE)
    chunks(model, pool, ids[:40], [40], pages)
    parents = [-1, -1, 0, 2, 1, 3]
    nodes = torch.stack([ids[40], ids[7], ids[41], ids[42], ids[8], ids[43]])
    step(model, pool, [(nodes[:3], SequenceRows(3, 40, pages, parents[:3]))])
    logits = step(model, pool, [(nodes[3:], SequenceRows(3, 40, pages, parents))])[0]
    assert torch.equal(logits[[0, 2]], expected[[42, 43]])


@pytest.mark.parametrize("size", [1, 6, 16, 48])
@pytest.mark.parametrize(("dtype", "kv_dtype"), _KINDS)
def test_accepted_rows_are_found_where_they_were_moved(
    library: Library, load: Load, dtype: str, kv_dtype: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_compact_module, "native_move", lambda: moves.move_of(library))
    model, ids = load(dtype, 1, kv_dtype), tokens(_LENGTH)
    expected = whole(model, ids)
    pool, pages = model.new_pool(192 // size, size), [*range(192 // size)][::-1]
    _poison(pool)
    chunks(model, pool, ids[:45], [45], pages)
    nodes = torch.stack([ids[7], ids[45], ids[8], ids[46], ids[47], ids[9]])
    step(model, pool, [(nodes, SequenceRows(6, 45, pages, [-1, -1, 1, 1, 3, 4]))])
    kv_compact(pool, [Kept(pages, 45, [1, 3, 4])])
    logits = step(model, pool, [(ids[48:60], SequenceRows(12, 48, pages))])[0]
    assert torch.equal(logits, expected[48:60])


@pytest.mark.parametrize("size", [8, 16])
@pytest.mark.parametrize(("dtype", "kv_dtype"), _KINDS)
def test_a_branch_of_no_numbers_spoils_no_other(
    library: Library, dtype: str, kv_dtype: str, size: int, tmp_path: Path
) -> None:
    theirs, broken = _save(tmp_path, **_WIDE), 5
    with torch.no_grad():
        theirs.model.embed_tokens.weight[broken] = float("nan")
    theirs.save_pretrained(tmp_path)
    model, ids = LlamaModel.load(tmp_path, dtype=dtype, kv_dtype=kv_dtype), tokens(_LENGTH)
    ids = ids.where(ids != broken, 6)
    expected = whole(model, ids)
    pool, pages = model.new_pool(96 // size, size), range(96 // size)
    chunks(model, pool, ids[:45], [45], pages)
    nodes = torch.tensor([broken, broken, broken, int(ids[45]), broken])
    logits = step(model, pool, [(nodes, SequenceRows(5, 45, pages, [-1, 0, 1, -1, 0]))])[0]
    assert torch.equal(logits[3], expected[45])
    assert logits[2].isnan().all()


def test_rows_of_a_tree_leave_each_other_alone_where_all_scores_are_below_zero(
    library: Library, tmp_path: Path
) -> None:
    theirs = _save(tmp_path, "llama 2", **_WIDE | {"num_key_value_heads": 2, "num_hidden_layers": 1})
    with torch.no_grad():
        theirs.model.embed_tokens.weight.add_(3)
        attention = theirs.model.layers[0].self_attn
        attention.q_proj.weight.copy_(
            attention.q_proj.weight.view(2, 2, 64, 256)[:, :1].expand(2, 2, 64, 256).flatten(0, 2)
        )
        attention.k_proj.weight.copy_(-attention.q_proj.weight.view(2, 2, 64, 256)[:, 0].flatten(0, 1))
    theirs.save_pretrained(tmp_path)
    model, ids, pages = LlamaModel.load(tmp_path, dtype="bfloat16"), tokens(60), range(20)
    pool = model.new_pool(20, PAGE_SIZE)
    chunks(model, pool, ids[:50], [50], pages)
    logits = step(model, pool, [(ids[50:], SequenceRows(10, 50, pages, range(-1, 9)))])[0]
    assert torch.equal(logits, whole(model, ids)[50:])


def _poison(pool: KvPool) -> None:
    """Fills pages with NaN: slots that were not written must never be read."""
    if pool.scales is None:
        pool.data.fill_(float("nan"))
    else:
        pool.scales.fill_(float("nan"))
        pool.data.copy_(torch.randint(-128, 128, pool.data.shape))


def _parts(random: Any, total: int) -> Iterator[int]:
    while total:
        part = random.randint(1, min(total, 70))
        yield part
        total -= part


def _bushy(random: Any, ids: torch.Tensor, at: int, depth: int) -> tuple[list[int], list[int], list[int]]:
    """A path of the tokens after ``at``, with side branches: tokens, parents and the nodes of the path."""
    nodes: list[int] = []
    parents: list[int] = []
    spine: list[int] = []
    for level in range(depth):
        parent = spine[-1] if spine else -1
        for _ in range(random.randrange(3)):
            nodes.append(random.randrange(VOCABULARY))
            parents.append(random.choice([parent, len(nodes) - 2]))
        spine.append(len(nodes))
        nodes.append(int(ids[at + level]))
        parents.append(parent)
    return nodes, parents, spine


@pytest.mark.parametrize("vocabulary", [1, 67, 4096])
def test_dice_are_those_of_the_reference(library: Library, vocabulary: int) -> None:
    seeds = torch.tensor([0, 7, -1, 2**62]).repeat_interleave(3)
    positions = torch.tensor([0, 7070, 2**32 - 1]).repeat(4)  # seed 7 at 7070 has a word that rounds to 1
    expected = reference.log_exponentials(seeds, positions, vocabulary)
    assert torch.equal(variates.variates_of(library)(seeds, positions, vocabulary), expected)


@pytest.mark.parametrize(("kv_dtype", "allowed"), [("fp8", "float32, .*int8"), ("float16", "float32"), ("int4", "fp8")])
def test_pages_of_another_kind_are_refused_by_name(load: Load, kv_dtype: str, allowed: str) -> None:
    with pytest.raises(ModelError, match=f"kv_dtype is '{kv_dtype}'; .*{allowed}"):
        load(kv_dtype=kv_dtype)


def test_without_compiled_code_a_cpu_has_pages_in_float32_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _save(tmp_path)
    monkeypatch.setattr(native, "choice", lambda: "torch")
    assert LlamaModel.load(tmp_path, kv_dtype="float32").kv_dtype == torch.float32
    with pytest.raises(ModelError, match=r"this device takes auto or float32$"):
        LlamaModel.load(tmp_path, kv_dtype="int8")


def test_a_foreign_id_position_or_page_is_refused(load: Load) -> None:
    model = load()
    pool = model.new_pool(4, PAGE_SIZE)

    def run(token: int, context: int, pages: list[int]) -> None:
        batch = RaggedBatch.build([SequenceRows(1, context, pages)], PAGE_SIZE)
        model.forward(torch.tensor([token]), batch, pool)

    with pytest.raises(IndexError, match="vocabulary"):
        run(VOCABULARY, 0, [0])
    with pytest.raises(IndexError, match="position"):
        run(0, 512, [0] * 65)
    with pytest.raises(ValueError, match="page"):
        run(0, 0, [4])
    pool = KvPool(3, 4, PAGE_SIZE, 2, 64, torch.bfloat16)
    with pytest.raises(ValueError, match="this decoder keeps them"):
        run(0, 0, [0])
    model, pool = load("bfloat16"), KvPool(model.config.layers, 4, PAGE_SIZE, 2, 64, torch.bfloat16)
    with pytest.raises(ValueError, match=r"this decoder keeps them|not packed"):
        run(0, 0, [0])


def test_the_compiled_decoder_is_an_error_if_requested_and_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _save(tmp_path)
    monkeypatch.setattr(native, "choice", lambda: "native")
    with pytest.raises(ModelError, match="48 input features in int8; they must be a multiple of 32"):
        LlamaModel.load(tmp_path, quantization="int8")


def test_without_a_compiler_a_model_runs_an_operator_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _save(tmp_path)
    monkeypatch.setattr(compiler, "LIBRARIES", tmp_path / "libraries")
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setattr(native, "library", loading.library.__wrapped__)
    with pytest.raises(NativeUnavailable, match="false failed"):
        loading.library.__wrapped__()
    assert not isinstance(LlamaModel.load(tmp_path)._forward, decoder.NativeDecoder)
    monkeypatch.setattr(native, "choice", lambda: "native")
    with pytest.raises(ModelError, match="false failed"):
        LlamaModel.load(tmp_path)


def test_dice_without_a_library_are_the_same() -> None:
    seeds, positions = torch.tensor([5, -9]), torch.tensor([3, 70000])
    expected = reference.log_exponentials(seeds, positions, 4099)
    assert torch.equal(cpu.log_exponentials_by_numpy(seeds, positions, 4099), expected)
