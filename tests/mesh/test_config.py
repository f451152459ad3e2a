"""The sources of settings, and the errors for wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta
from outrider.mesh.config import Settings, describe, fields, load, parse_flags
from outrider.mesh.errors import ConfigError


class Limits(msgspec.Struct, frozen=True):
    """A table inside a table."""

    batch: Annotated[int, Meta(ge=1, le=512)] = 8
    names: list[str] = []


class EngineSettings(Settings, frozen=True, kw_only=True):
    """One key of each kind."""

    dtype: Annotated[Literal["float32", "bfloat16"], Meta(description="what weights are held in")] = "float32"
    model: Path | None = None
    pages: Annotated[int, Meta(ge=1)] = 64
    ratio: float = 0.5
    fast: bool = False
    weights: dict[str, float] = msgspec.field(default_factory=dict)
    plug_ins: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    token: Annotated[str, Meta(extra={"secret": True})] = ""
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if self.fast and self.dtype != "bfloat16":
            raise ValueError("fast needs dtype = bfloat16")


def settings(tmp_path: Path, toml: str = "", flags: Any = None, **env: str) -> EngineSettings:
    file = tmp_path / "outrider.toml"
    file.write_text(toml)
    return load(EngineSettings, "verifier", file=file, env=env, flags=flags or {})


def complaint(tmp_path: Path, toml: str = "", flags: Any = None, **env: str) -> str:
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, toml, flags, **env)
    return str(caught.value).replace(str(tmp_path), "DIR")


def test_without_any_source_the_defaults_hold() -> None:
    assert load(EngineSettings, "verifier") == EngineSettings()


def test_each_source_overrides_the_one_before(tmp_path: Path) -> None:
    toml = "[mesh]\nport = 1\ndrain_s = 1\nhost = 'a'\nlog_level = 'debug'\n[verifier]\nport = 2\nhost = 'b'\npages = 2"
    env = {"OUTRIDER_HOST": "c", "OUTRIDER_DRAIN_S": "3", "OUTRIDER_VERIFIER_HOST": "d", "OUTRIDER_VERIFIER_PAGES": "4"}
    loaded = settings(tmp_path, toml, {"pages": "5"}, **env)
    assert (loaded.log_level, loaded.port, loaded.drain_s, loaded.host, loaded.pages) == ("debug", 2, 3.0, "d", 5)


def test_the_variable_of_a_service_overrides_the_common_one_in_whatever_order(tmp_path: Path) -> None:
    env = {"OUTRIDER_VERIFIER_HOST": "own", "OUTRIDER_HOST": "common"}
    assert settings(tmp_path, "", **env).host == "own"


def test_text_is_read_as_what_its_key_takes(tmp_path: Path) -> None:
    flags = {
        "model": "/models/pocket",
        "ratio": "0.25",
        "weights": "a=1,b=2.5",
        "limits.batch": "4",
        "limits.names": "x, y",
        "dtype": "bfloat16",
        "fast": "true",
    }
    loaded = settings(tmp_path, "", flags, OUTRIDER_VERIFIER_LIMITS__BATCH="2")
    assert loaded.model == Path("/models/pocket")
    assert (loaded.ratio, loaded.fast, loaded.weights) == (0.25, True, {"a": 1.0, "b": 2.5})
    assert loaded.limits == Limits(4, ["x", "y"])


def test_lists_and_tables_may_be_json(tmp_path: Path) -> None:
    loaded = settings(tmp_path, "", {"weights": '{"a": 1}', "limits.names": '["x,y"]'})
    assert loaded.weights == {"a": 1.0}
    assert loaded.limits.names == ["x,y"]


def test_a_file_takes_nested_tables(tmp_path: Path) -> None:
    loaded = settings(tmp_path, "[verifier]\nweights = {a = 1.5}\n[verifier.limits]\nnames = ['x']")
    assert (loaded.weights, loaded.limits) == ({"a": 1.5}, Limits(8, ["x"]))


def test_a_key_inside_a_table_has_the_type_that_it_has_in_toml(tmp_path: Path) -> None:
    texts = {
        "model": "/models/draft",
        "name": '"7"',
        "empty": "",
        "children": "4",
        "least": "0.5",
        "deep": "true",
        "ids": "[3, -1]",
        "nested.table": '{"a": 1}',
        "day": "2026-01-01",
    }
    loaded = settings(tmp_path, "", {f"plug_ins.one.{key}": text for key, text in texts.items()})
    assert loaded.plug_ins["one"] == {
        "model": "/models/draft",
        "name": "7",
        "empty": "",
        "children": 4,
        "least": 0.5,
        "deep": True,
        "ids": [3, -1],
        "nested": {"table": {"a": 1}},
        "day": "2026-01-01",
    }
    assert type(loaded.plug_ins["one"]["children"]) is int
    assert settings(tmp_path, "", {"weights.a": "1"}).weights == {"a": 1.0}
    assert settings(tmp_path, "", {"plug_ins.one": "a=4,b=x"}).plug_ins == {"one": {"a": 4, "b": "x"}}
    assert EngineSettings().plug_ins == {}


def test_a_key_inside_a_table_goes_over_that_key_and_leaves_the_others(tmp_path: Path) -> None:
    toml = "[verifier.plug_ins.one]\na = 1\nb = 1\nc = 1\n[verifier.plug_ins.two]\na = 1"
    env = {"OUTRIDER_VERIFIER_PLUG_INS__ONE__B": "2", "OUTRIDER_VERIFIER_PLUG_INS__ONE__C": "2"}
    loaded = settings(tmp_path, toml, {"plug_ins.one.c": "3"}, **env)
    assert loaded.plug_ins == {"one": {"a": 1, "b": 2, "c": 3}, "two": {"a": 1}}
    whole = settings(tmp_path, toml, {"plug_ins.one.c": "3", "plug_ins": '{"three": {}}'}, **env)
    assert whole.plug_ins == {"three": {}, "one": {"c": 3}}


def test_tables_and_variables_of_other_services_are_left_alone(tmp_path: Path) -> None:
    others = {"OUTRIDER_KERNELS": "torch", "OUTRIDER_NATIVE_LEVEL": "avx2", "OUTRIDER_API_KEY": "sk-x"}
    loaded = settings(tmp_path, "[gateway]\nwhatever = 1", OUTRIDER_GATEWAY_WHATEVER="1", OUTRIDER_CONFIG="x", **others)
    assert loaded == EngineSettings()


def test_variables_that_kubernetes_sets_for_a_service_are_left_alone(tmp_path: Path) -> None:
    links = {
        "OUTRIDER_VERIFIER_PORT": "tcp://10.0.0.1:50051",
        "OUTRIDER_VERIFIER_SERVICE_HOST": "10.0.0.1",
        "OUTRIDER_VERIFIER_PORT_50051_TCP_ADDR": "10.0.0.1",
        "OUTRIDER_NATS_SERVICE_PORT_CLIENT": "4222",
    }
    assert settings(tmp_path, "", **links) == EngineSettings()


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (
            {"toml": "[verifier]\npagse = 1"},
            "pagse ([verifier] in DIR/outrider.toml) is no setting (did you mean pages?)",
        ),
        ({"toml": "[mesh]\npages = 1"}, "pages ([mesh] in DIR/outrider.toml) is no setting"),
        (
            {"toml": "[verifire]\npages = 1"},
            "[verifire] in DIR/outrider.toml is no known table (did you mean verifier?)",
        ),
        ({"toml": "port = 1"}, "port in DIR/outrider.toml stands outside a table: put it under [mesh] or [verifier]"),
        (
            {"toml": "[verifier]\npages = 'x'"},
            "pages = 'x' ([verifier] in DIR/outrider.toml): expected `int`, got `str`",
        ),
        ({"toml": "[verifier]\npages = 0"}, "pages = 0 ([verifier] in DIR/outrider.toml): expected `int` >= 1"),
        ({"flags": {"port": "65536"}}, "port = '65536' (flag --port): expected `int` <= 65535"),
        ({"flags": {"limits.batch": "0"}}, "limits.batch = '0' (flag --limits.batch): expected `int` >= 1"),
        (
            {"OUTRIDER_VERIFIER_DTYPE": "bloat16"},
            "dtype = 'bloat16' (variable OUTRIDER_VERIFIER_DTYPE): not one of float32, bfloat16",
        ),
        (
            {"OUTRIDER_VERIFIER_FAST": "maybe"},
            "fast = 'maybe' (variable OUTRIDER_VERIFIER_FAST): expected `bool`, got `str`",
        ),
        ({"OUTRIDER_HSOT": "x"}, "variable OUTRIDER_HSOT is no setting (did you mean OUTRIDER_HOST?)"),
        ({"flags": {"weights": "a"}}, "weights = 'a' (flag --weights): expected `key=value`, got `a`"),
        (
            {"flags": {"plug_in.one.model": "x"}},
            "plug_in.one.model (flag --plug_in.one.model) is no setting (did you mean plug_ins?)",
        ),
        ({"flags": {"pages.few": "1"}}, "pages.few (flag --pages.few) is no setting (did you mean pages?)"),
        ({"flags": {"plug_ins..a": "1"}}, "plug_ins..a (flag --plug_ins..a) is no setting"),
        ({"flags": {"weights.a.b": "1"}}, "weights.a.b (flag --weights.a.b) is no setting: weights.a is no table"),
        ({"flags": {"weights.a": "x"}}, "weights.a = 'x' (flag --weights.a): expected `float`, got `str`"),
        (
            {"flags": {"plug_ins.one": "x"}},
            "plug_ins.one = 'x' (flag --plug-ins.one): expected `key=value`, got `x`",
        ),
        (
            {"OUTRIDER_VERIFIER_WEIGHTS__A": "x"},
            "weights.a = 'x' (variable OUTRIDER_VERIFIER_WEIGHTS__A): expected `float`, got `str`",
        ),
        ({"flags": {"fast": "true"}}, "[verifier]: fast needs dtype = bfloat16"),
    ],
)
def test_what_is_wrong_is_named_with_its_source(tmp_path: Path, sources: dict[str, Any], message: str) -> None:
    assert complaint(tmp_path, **sources).startswith(message)


def test_a_file_that_is_no_toml_or_is_not_there_is_named(tmp_path: Path) -> None:
    assert complaint(tmp_path, "[verifier").startswith("DIR/outrider.toml is not TOML")
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        load(Settings, "mesh", file=tmp_path / "nowhere.toml")


def test_a_secret_is_shown_to_nobody(tmp_path: Path) -> None:
    env = {"OUTRIDER_VERIFIER_TOKEN": "hush", "OUTRIDER_NATS_URL": "nats://me:hush@host:4222"}
    shown = {entry.field.path: entry.shown for entry in describe(EngineSettings, "verifier", env=env)}
    assert shown["token"] == "********"
    assert shown["nats_url"] == "nats://me:********@host:4222"
    assert "hush" not in complaint(tmp_path, "[verifier]\ntoken = ['hush']")


def test_every_value_tells_where_it_came_from() -> None:
    effective = describe(EngineSettings, "verifier", env={"OUTRIDER_PORT": "7"}, flags={"pages": "9"})
    sources = {entry.field.path: (entry.value, entry.source) for entry in effective}
    assert sources["port"] == (7, "variable OUTRIDER_PORT")
    assert sources["pages"] == (9, "flag --pages")
    assert sources["limits.batch"] == (8, "default")


def test_a_table_tells_of_all_places_that_its_keys_came_from(tmp_path: Path) -> None:
    file = tmp_path / "outrider.toml"
    file.write_text("[verifier]\nweights = {a = 1}")
    loaded = describe(EngineSettings, "verifier", file=file, flags={"weights.b": "2"})
    sources = {entry.field.path: (entry.value, entry.source) for entry in loaded}
    assert sources["weights"] == ({"a": 1.0, "b": 2.0}, f"[verifier] in {file}, flag --weights.b")


def test_every_common_key_is_documented_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    section = page.partition("## Keys of all services\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip(" `") for cell in line.split("|")[1:3]] for line in section.splitlines() if line.startswith("| `")
    ]
    assert dict(rows) == {
        path: f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
        for path, field in fields(Settings).items()
    }


def test_flags_are_the_keys_with_dashes_or_underscores() -> None:
    arguments = ["--nats-wait-s", "1", "--metrics_port=2", "--limits.batch", "3", "--config", "file.toml"]
    file, flags = parse_flags("outrider verifier", EngineSettings, arguments)
    assert file == Path("file.toml")
    assert flags == {"nats_wait_s": "1", "metrics_port": "2", "limits.batch": "3"}


def test_flags_of_keys_inside_tables_are_written_as_those_keys() -> None:
    arguments = ["--plug-ins.one.least_value=1", "--plug_ins.a-drafter.b", "2", "--plug_ins.a-drafter.b", "3"]
    _, flags = parse_flags("outrider verifier", EngineSettings, arguments)
    assert flags == {"plug_ins.one.least_value": "1", "plug_ins.a-drafter.b": "3"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pagse", "1"], "--pagse is no flag of outrider verifier (did you mean --pages?)"),
        (["--pages.few=1"], "--pages.few=1 is no flag of outrider verifier (did you mean --pages?)"),
        (["--plug-ins.=1"], "--plug-ins.=1 is no flag of outrider verifier"),
        (["pages"], "pages is no flag of outrider verifier"),
        (["--pages"], "argument --pages: expected one argument"),
    ],
)
def test_a_flag_that_is_none_is_named(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_flags("outrider verifier", EngineSettings, arguments)
    assert str(caught.value).startswith(message)
