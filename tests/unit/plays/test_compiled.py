"""A dataset ready to run: who a row is, whether it runs, and what its columns are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rowmill import Dataset, Provider, Row, RowContext, Tool, col
from rowmill.plays.compiled import (
    PlainWork,
    ResolverWork,
    ToolWork,
    compile_dataset,
    reason_of,
)
from rowmill.plays.values import NotJson

registry = Provider("registry", base_url="http://registry.test")
profile = Tool("registry.profile", registry, post="/company")
ACME = {"domain": "acme.test", "name": "Acme"}


async def resolve(row: Row, ctx: RowContext) -> Any:
    await asyncio.sleep(0)
    return row["name"]


class Callable_:
    async def __call__(self, row: Row, ctx: RowContext) -> Any:
        return await resolve(row, ctx)


def plain(**options: Any) -> Dataset:
    return Dataset("d", **options).with_column("label", lambda row: row["name"])


@pytest.mark.behaviour("D1")
def test_columns_keep_their_order_and_kind() -> None:
    dataset = compile_dataset(
        plain()
        .with_column("profile", profile(domain=col("domain")), on_error="continue")
        .with_column("site", resolve, when=lambda row: row["profile"] is not None)
        .with_column("_draft", Callable_())
        .with_column("name", lambda row: 1, replace=True)
    )
    kinds = [type(column.work) for column in dataset.columns]
    assert kinds == [PlainWork, ToolWork, ResolverWork, ResolverWork, PlainWork]
    assert [column.on_error for column in dataset.columns].count("continue") == 1
    assert dataset.output_columns == ("label", "profile", "site", "name")
    assert dataset.replaced_columns == ("name",)
    assert [tool.id for tool in dataset.tools] == ["registry.profile"]


@pytest.mark.behaviour("D6")
def test_a_dataset_of_plain_functions_is_pure() -> None:
    assert compile_dataset(plain()).pure
    assert not compile_dataset(plain().with_column("x", resolve)).pure


def test_a_dataset_is_not_changed_by_what_grows_from_it() -> None:
    base = plain()
    base.with_column("more", lambda row: 1)
    assert [column.name for column in base.columns] == ["label"]


@pytest.mark.behaviour("I1")
def test_rows_of_one_key_are_one_row_and_without_a_key_every_cell_counts() -> None:
    other = ACME | {"name": "Acme Inc"}
    keyed, whole = compile_dataset(plain(key="domain")), compile_dataset(plain())
    assert keyed.identify(ACME, 0) == keyed.identify(other, 1)
    assert whole.identify(ACME, 0) == whole.identify(dict(reversed(ACME.items())), 1)
    assert whole.identify(ACME, 0) != whole.identify(other, 1)
    # A column that shares its name with an output counts too.
    assert whole.identify(ACME | {"label": "a"}, 0) != whole.identify(ACME | {"label": "b"}, 0)


@pytest.mark.behaviour("I1")
def test_a_key_is_a_column_several_or_a_function() -> None:
    several = compile_dataset(plain(key=["domain", "name"]))
    assert several.identify(ACME, 0) != several.identify(ACME | {"name": "x"}, 0)
    assert compile_dataset(plain(key=("domain",))).identify(ACME, 0) == compile_dataset(
        plain(key="domain")
    ).identify(ACME, 0)
    folded = compile_dataset(plain(key=lambda values: values["domain"].strip().lower()))
    assert folded.identify(ACME, 0) == folded.identify({"domain": " ACME.test "}, 7)
    assert folded.identify(ACME, 0) == compile_dataset(plain(key="domain")).identify(ACME, 0)


@pytest.mark.parametrize(
    "key", ["domain", ["domain", "note"], lambda values: values["domain"] or None]
)
def test_a_row_with_an_empty_key_is_refused_alone(key: Any) -> None:
    dataset = compile_dataset(plain(key=key))
    values = {"domain": "", "note": " ", "name": "Acme"}
    first, second = dataset.identify(values, 1), dataset.identify(values, 2)
    assert first.refused is not None
    assert first.refused.endswith("is empty")
    assert first.row != second.row


def test_a_key_function_that_fails_refuses_its_row_alone() -> None:
    dataset = compile_dataset(plain(key=lambda values: values["nope"].lower()))
    assert dataset.identify(ACME, 0).refused == "the key can't be worked out: KeyError: 'nope'"
    odd = compile_dataset(plain(key=lambda values: {1}))
    assert "the key is a set, not JSON" in str(odd.identify(ACME, 0).refused)
    assert dataset.identify(ACME, 3, "line 4: 5 cells, 4 headers").refused == (
        "line 4: 5 cells, 4 headers"
    )


def test_a_blank_row_is_skipped_not_failed() -> None:
    dataset = compile_dataset(plain(key="domain"))
    blank = {"domain": "", "name": " "}
    assert dataset.identify(blank, 0).refused is None
    assert not dataset.qualifies(blank)
    assert dataset.qualifies(ACME)


@pytest.mark.behaviour("D4")
def test_a_row_qualifies_by_the_plays_condition() -> None:
    dataset = compile_dataset(plain(when=lambda row: row["domain"]))
    assert dataset.qualifies(ACME)
    assert not dataset.qualifies({"domain": "", "name": "Acme"})


@pytest.mark.behaviour("D7")
def test_an_output_hides_the_input_of_its_name_from_the_columns_after_it() -> None:
    outputs: dict[str, Any] = {}
    row = Row(ACME, outputs)
    assert row["name"] == "Acme"
    outputs["name"] = None
    assert row["name"] is None
    assert "domain" in row
    assert row.get("nope", 3) == 3
    assert list(row) == ["domain", "name"]
    assert len(row) == 2
    with pytest.raises(TypeError):
        row["name"] = 1  # type: ignore[index]


def test_a_reason_is_a_sentence() -> None:
    with pytest.raises(KeyError) as missing:
        Row(ACME, {})["title"]
    assert reason_of(missing.value) == 'the row has no column "title"; it has "domain", "name"'
    assert reason_of(ZeroDivisionError("division by zero")) == "ZeroDivisionError: division by zero"
    (column,) = compile_dataset(plain()).columns
    with pytest.raises(NotJson, match='column "label".a is a complex') as problem:
        column.to_json({"a": 1j})
    assert reason_of(problem.value) == str(problem.value)
