"""What a play declares: rates, times, secrets, headers, tools and their typed outputs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field

from rowmill import Provider, RetryPolicy, Tool, bearer, col, header, rate
from rowmill.errors import PlayError
from rowmill.plays.providers import seconds
from rowmill.plays.tools import OutputMismatch
from rowmill.plays.values import NotJson
from rowmill.streams.core.columns import NoSuchColumn

registry = Provider("registry", base_url="https://Registry.test:8443/v2/")


class Profile(BaseModel):
    name: str
    employees: int | None = None
    web_site: str = Field("", alias="webSite")


@pytest.mark.parametrize(
    ("text", "calls", "per_s"),
    [
        ("100/s", 100, 1),
        ("2000 / min", 2000, 60),
        ("5/10s", 5, 10),
        ("1000/hour", 1000, 3600),
        ("10/days", 10, 86_400),
        ("30/minute", 30, 60),
        ("1/500ms", 1, 0.5),
    ],
)
def test_a_rate_is_calls_per_time(text: str, calls: int, per_s: float) -> None:
    assert (rate(text).calls, rate(text).per_s) == (calls, per_s)


@pytest.mark.parametrize(
    "text", ["", "100", "0/s", "1/0s", "-1/s", "1/fortnight", "1.5/s", "1/s/s"]
)
def test_anything_else_is_no_rate(text: str) -> None:
    with pytest.raises(PlayError, match=r"test_declarations\.py:\d+: rate\("):
        rate(text)


@pytest.mark.parametrize(
    ("text", "value"), [("30d", 2_592_000), ("90 s", 90), ("1.5h", 5400), (7, 7)]
)
def test_a_time_is_text_or_seconds(text: str | float, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "d", "soon", "0s", -1, 0, "1/s", float("nan")])
def test_anything_else_is_no_time(text: str | float) -> None:
    with pytest.raises(ValueError):
        seconds(text)


@pytest.mark.behaviour("R10")
def test_a_secret_stands_in_a_play_by_name_only() -> None:
    assert header("X-Key", "REGISTRY_KEY").model_dump() == {
        "kind": "header",
        "secret": "REGISTRY_KEY",
        "name": "X-Key",
    }
    for value in ("sk-live-42", "", "lower_case"):
        with pytest.raises(PlayError) as refused:
            bearer(value)
        assert not value or value not in str(refused.value)
    with pytest.raises(PlayError, match="use auth=") as refused:
        Provider("p", base_url="http://h.test", headers={"authorization": "Bearer sk-live-42"})
    assert "sk-live-42" not in str(refused.value)
    with pytest.raises(PlayError, match="use auth="):
        Provider("p", base_url="http://user:pw@h.test")


@pytest.mark.behaviour("R1")
def test_the_host_of_a_provider_is_lower_case_without_scheme_and_port() -> None:
    assert registry.spec.host == "registry.test"
    assert registry.spec.base_url == "https://Registry.test:8443/v2"


def test_a_tool_carries_what_dispatch_needs() -> None:
    tool = Tool("t", registry, get="/x", stale_after=60, retry=RetryPolicy(attempts=1), cost=0.5)
    assert (tool.spec.method, tool.spec.path, tool.spec.provider) == ("GET", "/x", "registry")
    assert tool.spec.stale_after_s == 60
    assert tool.spec.retry is not None
    assert tool.spec.retry.attempts == 1
    assert type(tool.spec).model_validate_json(tool.spec.model_dump_json()) == tool.spec


@pytest.mark.behaviour("D1")
def test_an_answer_that_does_not_fit_names_its_field() -> None:
    tool = Tool("registry.profile", registry, post="/company", output=Profile)
    assert tool.read({"name": "3M", "webSite": "3m.test", "more": 1}).web_site == "3m.test"
    with pytest.raises(OutputMismatch) as misfit:
        tool.read({"name": "3M", "employees": "many"})
    assert str(misfit.value) == (
        "registry.profile: the answer does not fit Profile: employees: input should be a valid "
        "integer, unable to parse string as an integer (got 'many')"
    )
    with pytest.raises(OutputMismatch, match="name: field required"):
        tool.read({})


def test_an_output_may_be_any_type_of_json() -> None:
    tool = Tool("t", registry, post="/x", output=list[Profile])
    assert [profile.name for profile in tool.read([{"name": "a"}])] == ["a"]
    assert tool.spec.output_schema is not None
    assert tool.spec.output_schema["type"] == "array"
    assert Tool("u", registry, post="/x").read({"any": ["thing"]}) == {"any": ["thing"]}


def test_a_question_is_built_from_columns_and_constants() -> None:
    tool = Tool("t", registry, post="/x")
    call = tool(
        symbol=col("Symbol"),
        where={"sector": col("GICS Sector"), "any": [col("Symbol"), 1]},
        fields=("name",),
        **{"company-name": col("Net.Revenue")},
    )
    row: dict[str, Any] = {"Symbol": "MMM", "GICS Sector": "I", "Net.Revenue": "12"}
    assert call.build(row) == {
        "symbol": "MMM",
        "where": {"sector": "I", "any": ["MMM", 1]},
        "fields": ["name"],
        "company-name": "12",
    }
    assert [reference.name for reference in call.cols] == [
        "Symbol",
        "GICS Sector",
        "Symbol",
        "Net.Revenue",
    ]


def test_a_typed_value_goes_into_a_question_as_json() -> None:
    call = Tool("t", registry, post="/x")(profile=col("profile"))
    profile = Profile(name="3M", webSite="3m.test")
    assert call.build({"profile": profile}) == {
        "profile": {"name": "3M", "employees": None, "webSite": "3m.test"}
    }
    with pytest.raises(NotJson, match=r"t\(profile\) is a set"):
        call.build({"profile": {1}})


def test_a_question_of_a_column_that_is_missing_names_those_there_are() -> None:
    from rowmill import Row

    call = Tool("t", registry, post="/x")(symbol=col("Simbol"))
    with pytest.raises(NoSuchColumn, match='no column "Simbol"; it has "Symbol", "b"'):
        call.build(Row({"Symbol": "MMM"}, {"b": 1}))
