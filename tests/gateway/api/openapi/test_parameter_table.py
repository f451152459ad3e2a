"""The page of parameters says what the gateway does with them."""

from __future__ import annotations

from pathlib import Path

from outrider.gateway.api.openapi.parameter_table import APIS, fates, write

PAGE = Path(__file__).parents[4] / "docs" / "parameters.md"


def test_the_tables_of_parameters_are_those_that_the_code_makes(tmp_path: Path) -> None:
    made = tmp_path / "parameters.md"
    made.write_text(PAGE.read_text())
    write(made)
    assert made.read_text() == PAGE.read_text(), "run `make parameters-table`"


def test_a_parameter_has_one_fate_in_an_api() -> None:
    for api in APIS:
        table = fates(api)
        assert {fate.kind for fate in table.values()} == {"honoured", "refused", "ignored"}
    assert fates("chats")["n_probs"] == ("refused", "`0`; `logprobs` instead")
    assert fates("responses")["n_probs"] == ("refused", "`0`")
    assert fates("completions")["n_predict"] == ("honoured", "`max_tokens`")


def test_no_api_leaves_a_parameter_unlisted_that_another_one_honours() -> None:
    tables = {api: fates(api) for api in APIS}
    honoured = {name for table in tables.values() for name, fate in table.items() if fate.kind == "honoured"}
    assert {api: sorted(honoured - table.keys()) for api, table in tables.items()} == {api: [] for api in APIS}
    for api in ("completions", "chats", "messages"):
        assert tables[api]["max_output_tokens"] == ("refused", "`null`; `max_tokens` instead")
    assert tables["responses"]["stop_sequences"] == ("refused", "`[]`; `stop` instead")
    assert tables["chats"]["previous_response_id"].kind == "refused"
