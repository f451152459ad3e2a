"""Properties of every registered tier, and the store over tiers."""

from __future__ import annotations

import os
import resource
import signal
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from outrider.kvcache.arena import MemoryTier
from outrider.kvcache.blob import DamagedPage, Header, open_blob, owner_of
from outrider.kvcache.extents import Extents
from outrider.kvcache.files import DirectoryTier, DiskTier
from outrider.kvcache.index import Index
from outrider.kvcache.objects import LocalObjects
from outrider.kvcache.service import make_tiers
from outrider.kvcache.settings import KvCacheSettings
from outrider.kvcache.store import IndexedTier, Store
from outrider.kvcache.tiers import Tier, TierContext, TierError
from outrider.mesh.errors import ConfigError
from outrider.wire.pages import page_checksum, page_key

REGISTERED = {"memory": MemoryTier, "disk": DiskTier, "directory": DirectoryTier}
MakeTier = Callable[..., Tier]


def key(number: int, tenant: str = "t") -> bytes:
    return page_key(b"f" * 32, tenant, number.to_bytes(32, "big"))


def page(name: bytes, size: int = 1000, *, seconds: float = 1.0, expires: float = 1e18, tenant: str = "t") -> Any:
    data = (name * (size // 32 + 1))[:size]
    return Header(page_checksum(name, data), size, 16, 0, seconds, expires, owner_of(tenant)), data


def blob(name: bytes, size: int = 1000) -> bytes:
    header, data = page(name, size)
    return bytes(header.pack() + data)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeTier]:
    opened: list[Tier] = []

    def build(name: str, capacity: int = 100_000, **options: Any) -> Tier:
        where = {"memory": {"directory": str(tmp_path)}}.get(name, {"path": str(tmp_path / name)})
        opened.append(REGISTERED[name](TierContext(capacity, "one", where | options)))
        return opened[-1]

    yield build
    for tier in opened:
        tier.close()


def make_store(*tiers: tuple[str, Tier, int], share: float = 1.0, now: list[float] | None = None) -> Store:
    clock = (lambda: now[0]) if now else (lambda: 0.0)
    return Store(
        [IndexedTier(name, tier, Index(quota, int(quota * share), clock)) for name, tier, quota in tiers], clock
    )


def put(store: Store, name: bytes, size: int = 1000, **header: Any) -> bool:
    return store.put(name, *page(name, size, **header))


def tier_of(store: Store, name: bytes) -> str | None:
    page = store.get(name)
    return None if page is None else page.tier


def data_of(store: Store, name: bytes) -> bytes | None:
    page = store.get(name)
    return None if page is None else page.data


def test_the_tiers_that_are_tested_are_those_that_are_registered() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    points = project["project"]["entry-points"]["outrider.cache_tiers"]
    loaded = {name: EntryPoint(name, value, "outrider.cache_tiers").load() for name, value in points.items()}
    assert loaded == REGISTERED


@pytest.mark.parametrize("name", REGISTERED)
def test_a_tier_gives_back_what_was_written_and_forgets_what_is_removed(make: MakeTier, name: str) -> None:
    tier = make(name)
    assert tier.read(key(1)) is None
    assert tier.write(key(1), blob(key(1)))
    assert tier.write(key(2), blob(key(2), 3000))
    assert tier.write(key(1), blob(key(1), 2000))
    assert tier.read(key(1)) == blob(key(1), 2000)
    tier.remove(key(1))
    tier.remove(key(1))
    assert tier.read(key(1)) is None
    assert tier.read(key(2)) == blob(key(2), 3000)


@pytest.mark.parametrize("name", REGISTERED)
def test_a_tier_refuses_options_that_it_does_not_have(make: MakeTier, name: str) -> None:
    with pytest.raises(TierError, match="sise"):
        make(name, sise=3)


@pytest.mark.parametrize("name", REGISTERED)
def test_a_store_over_a_tier_keeps_within_its_quota(make: MakeTier, name: str) -> None:
    store = make_store((name, make(name, 10_000), 10_000))
    assert all(put(store, key(number)) for number in range(50))
    held = [number for number in range(50) if store.get(key(number)) is not None]
    size, pages = store.sizes()[name]
    assert size <= 10_000
    assert len(held) == pages == 9
    assert not put(store, key(99), 11_000)


def test_what_is_dear_or_asked_for_again_stays(make: MakeTier) -> None:
    store = make_store(("memory", make("memory"), 10_000))
    put(store, key(0), seconds=100.0)
    put(store, key(1))
    for number in range(2, 40):
        put(store, key(number))
        assert store.get(key(1)) is not None
    assert store.get(key(0)) is not None
    assert store.get(key(2)) is None


def test_a_tenant_evicts_only_its_own_pages_beyond_its_share(make: MakeTier) -> None:
    store = make_store(("memory", make("memory"), 20_000), share=0.5)
    put(store, key(0, "small"), tenant="small")
    for number in range(50):
        put(store, key(number, "large"), tenant="large")
    assert store.get(key(0, "small")) is not None
    assert store.sizes()["memory"][0] <= 10_000 + 1100


def test_a_page_is_gone_when_its_time_is_over(make: MakeTier) -> None:
    now = [0.0]
    store = make_store(("memory", make("memory"), 10_000), now=now)
    put(store, key(1), expires=5.0)
    assert store.leading([key(1)]) == 1
    now[0] = 5.0
    assert store.leading([key(1)]) == 0
    assert store.get(key(1)) is None
    assert store.sizes()["memory"] == (0, 0)


def test_what_memory_evicts_is_found_on_disk_and_comes_up_again(make: MakeTier) -> None:
    store = make_store(("memory", make("memory"), 3500), ("disk", make("disk"), 100_000))
    for number in range(10):
        put(store, key(number))
    tiers = [tier_of(store, key(number)) for number in range(10)]
    assert None not in tiers
    assert "disk" in tiers
    store.get(key(0))
    assert tier_of(store, key(0)) == "memory"


def test_a_store_that_is_closed_keeps_its_pages_on_disk_for_its_next_life(make: MakeTier) -> None:
    first = make_store(("memory", make("memory"), 100_000), ("disk", make("disk"), 100_000))
    for number in range(5):
        put(first, key(number))
    first.close()
    second = make_store(("memory", make("memory"), 100_000), ("disk", make("disk"), 3500))
    second.recover()
    assert sum(second.get(key(number)) is not None for number in range(5)) == 3


@pytest.mark.parametrize("damage", ["flip", "tear", "empty", "swap"])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_file_that_was_changed_is_a_miss_and_is_removed(
    make: MakeTier, tmp_path: Path, damage: str, sealed: bool
) -> None:
    (tmp_path / "key").write_bytes(b"k" * 32)
    tier = make("disk", **({"key_file": str(tmp_path / "key")} if sealed else {}))
    store = make_store(("disk", tier, 100_000))
    put(store, key(1))
    put(store, key(2))
    file, other = (next((tmp_path / "disk").glob(f"0/*/{name.hex()}")) for name in (key(1), key(2)))
    data = bytearray(file.read_bytes())
    data[-40] ^= 4
    changed = {"flip": bytes(data), "tear": data[:500], "empty": b"", "swap": other.read_bytes()}
    file.write_bytes(changed[damage])
    assert store.get(key(1)) is None
    assert not file.exists()
    assert data_of(store, key(2)) == page(key(2))[1]


def test_a_sealed_file_does_not_hold_what_was_stored(make: MakeTier, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"k" * 16)
    tier = make("disk", key_file=str(tmp_path / "key"))
    tier.write(key(1), blob(key(1)))
    (file,) = (tmp_path / "disk").glob("0/*/*")
    assert page(key(1))[1][:64] not in file.read_bytes()
    assert tier.read(key(1)) == blob(key(1))
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(TierError, match="5 bytes"):
        make("disk", key_file=str(tmp_path / "key"))


def test_a_full_disk_costs_the_page_and_nothing_else(make: MakeTier, tmp_path: Path) -> None:
    store = make_store(("disk", make("disk"), 100_000))
    put(store, key(1))
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        assert not put(store, key(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert store.get(key(2)) is None
    assert store.get(key(1)) is not None
    assert not list((tmp_path / "disk").glob("0/*/*.part"))
    assert put(store, key(2))


def test_the_disk_tier_removes_what_a_killed_writer_left(make: MakeTier, tmp_path: Path) -> None:
    before = make("disk")
    before.write(key(1), blob(key(1)))
    before.close()
    (file,) = (tmp_path / "disk").glob("0/*/*")
    left = file.with_suffix(".part")
    left.write_bytes(b"half")
    assert [name for name, _ in make("disk").stored()] == [key(1)]
    assert not left.exists()


def test_two_processes_on_one_disk_keep_out_of_each_other_s_way(make: MakeTier, tmp_path: Path) -> None:
    one, two = make("disk"), make("disk")
    one.write(key(1), blob(key(1)))
    assert two.read(key(1)) is None
    one.close()
    assert make("disk").read(key(1)) == blob(key(1))


def test_instances_find_one_another_s_pages_in_a_shared_directory(make: MakeTier) -> None:
    ours, theirs = (make_store(("directory", make("directory"), 100_000)) for _ in range(2))
    put(ours, key(1))
    assert theirs.leading([key(1), key(2)]) == 1
    assert data_of(theirs, key(1)) == page(key(1))[1]


def test_a_pinned_page_stays_where_it_is_until_its_reader_is_done(make: MakeTier) -> None:
    tier = make("memory", 3500)
    store = make_store(("memory", tier, 3500))
    put(store, key(0))
    pinned = store.get(key(0), pin=True)
    assert pinned is not None
    assert pinned.place is not None
    assert isinstance(tier, MemoryTier)
    for number in range(1, 20):
        put(store, key(number))
        lies = tier.path.read_bytes()[pinned.offset : pinned.offset + 1000]
        assert lies == page(key(0))[1]
    assert store.get(key(0)) is None
    store.unpin([pinned.place])
    for number in range(20, 200):
        put(store, key(number))
    assert tier.path.read_bytes()[pinned.offset : pinned.offset + 1000] != page(key(0))[1]


def test_an_arena_of_a_killed_process_is_removed_and_one_in_use_is_not(make: MakeTier, tmp_path: Path) -> None:
    left = tmp_path / "outrider-kv-dead-0"
    left.write_bytes(bytes(100))
    first, second = make("memory"), make("memory")
    assert isinstance(first, MemoryTier)
    assert isinstance(second, MemoryTier)
    assert not left.exists()
    assert first.path.exists()
    assert second.path.exists()
    assert oct(os.stat(first.path).st_mode & 0o777) == "0o600"


def test_extents_that_are_given_back_are_joined() -> None:
    room = Extents(64 * 10)
    places = [room.take(64) for _ in range(10)]
    assert room.take(1) is None
    for place in (3, 5, 4, 0, 9, 1, 2, 8, 6, 7):
        given = places[place]
        assert given is not None
        room.give(given, 64)
    assert room.take(640) == 0


def test_an_intact_page_in_another_s_place_is_damaged() -> None:
    assert open_blob(key(1), blob(key(1)))[1] == page(key(1))[1]
    with pytest.raises(DamagedPage):
        open_blob(key(2), blob(key(1)))


def test_the_same_tokens_have_other_keys_for_another_tenant_or_model() -> None:
    chain = b"c" * 32
    keys = {page_key(f, t, chain) for f in (b"f" * 32, b"g" * 32) for t in ("a", "b", "")}
    assert len(keys) == 6


def test_objects_are_listed_by_name_and_read_in_part(tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path / "objects")
    objects.put("abcd", b"0123456789")
    assert objects.get("abcd", 4) == b"0123"
    assert list(objects.list()) == ["abcd"]
    objects.delete("abcd")
    assert objects.get("abcd") is None


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tiers": ["disk"], "quotas": {"memory": 5}}, "memory"),
        ({"tiers": ["disk", "memory"]}, "memory first"),
        ({"tiers": ["memory", "memory"]}, "once"),
        ({"tiers": ["memory"], "options": {"disk": {}}}, "disk"),
    ],
)
def test_settings_that_cannot_be_kept_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_tiers(KvCacheSettings(**settings), "one")


@pytest.mark.parametrize("name", REGISTERED)
def test_an_erased_tenant_loses_its_older_pages_in_every_tier_and_nobody_else_does(make: MakeTier, name: str) -> None:
    store = make_store((name, make(name), 100_000))
    mine, other, later = key(1), key(2, "other"), key(3)
    for each, tenant, stored in ((mine, "t", 5.0), (other, "other", 5.0), (later, "t", 7.0)):
        header, data = page(each, tenant=tenant)
        assert store.put(each, replace(header, stored=stored), data)
    assert store.erase(owner_of("t"), 6.0) == {name: 1}
    assert [tier_of(store, each) for each in (mine, other, later)] == [None, name, name]


def test_an_erased_page_is_a_miss_that_another_instance_writes_later(make: MakeTier) -> None:
    store, away = (make_store(("directory", make("directory"), 100_000)) for _ in range(2))
    assert put(away, key(1))
    assert store.erase(owner_of("t"), 6.0) == {"directory": 1}
    assert put(make_store(("directory", make("directory"), 100_000)), key(2))
    assert data_of(store, key(2)) is None


def test_room_in_memory_that_becomes_free_holds_zeros(make: MakeTier) -> None:
    tier = make("memory")
    assert isinstance(tier, MemoryTier)
    store = make_store(("memory", tier, 100_000))
    assert put(store, key(1))
    assert put(store, key(2))
    pinned = store.get(key(2), pin=True)
    assert pinned is not None
    assert pinned.place is not None
    assert key(1) * 8 in tier.path.read_bytes()
    store.erase(owner_of("t"), 1.0)
    assert key(1) * 8 not in tier.path.read_bytes()
    assert key(2) * 8 in tier.path.read_bytes()
    store.unpin([pinned.place])
    assert key(2) * 8 not in tier.path.read_bytes()


@pytest.mark.parametrize("name", REGISTERED)
def test_pages_whose_time_is_over_go_although_nobody_asks_for_them(make: MakeTier, name: str) -> None:
    tier, now = make(name), [0.0]
    store = make_store((name, tier, 100_000), now=now)
    assert put(store, key(1), expires=10)
    assert put(store, key(2), expires=30)
    now[0] = 20
    store.expire()
    assert tier.read(key(1)) is None
    assert data_of(store, key(2)) is not None
