"""The example and the docs load, fit their input, and give what they say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rowmill.ops.provider import answers
from rowmill.plays.compiled import PlainWork, ResolverWork, ToolWork
from rowmill.plays.loading import LoadedPlay, load
from rowmill.plays.tools import Tool
from rowmill.streams.adapters.csv import read_csv
from rowmill.streams.core.columns import Row

ROOT = Path(__file__).parents[3]
SP500 = ROOT / "examples" / "sp500"


class PracticeContext:
    """A `ctx` whose provider is a function call away."""

    def __init__(self) -> None:
        self.tools = self

    async def execute(self, tool: Tool[Any], input: Mapping[str, Any]) -> Any:
        """Answer as the practice provider does."""
        answer = (
            answers.company(input["symbol"])
            if tool.spec.path == "/company"
            else answers.domain(input["company"])
        )
        return tool.read(answer)


async def worked_out(play: LoadedPlay, values: Mapping[str, Any]) -> dict[str, Any]:
    outputs: dict[str, Any] = {}
    row, ctx = Row(values, outputs), PracticeContext()
    for column in play.dataset.columns:
        match column.work:
            case ToolWork(tool=tool, build=build):
                outputs[column.name] = await ctx.execute(tool, build(row))
            case ResolverWork(function=function):
                outputs[column.name] = await function(row, ctx)  # type: ignore[arg-type] # a part
            case PlainWork(function=function):
                outputs[column.name] = function(row)
    return {column.name: column.to_json(outputs[column.name]) for column in play.dataset.columns}


async def test_the_sp500_play_works_every_company_out() -> None:
    table = read_csv(SP500 / "sp500-constituents.csv")
    play = load(str(SP500 / "play.py"), {"base_url": "http://127.0.0.1:1"}, table.header)
    assert play.reference.name == "sp500"
    assert not play.dataset.pure
    rows = list(table.rows())
    identities = {play.dataset.identify(row.values, row.index).row for row in rows}
    assert len(identities) == len(rows) == 503
    first = await worked_out(play, rows[0].values)
    name = answers.company("MMM")["name"]
    assert first["profile"] == {"name": name, "employees": answers.company("MMM")["employees"]}
    assert first["domain"] == answers.domain(name)
    assert first["label"] == f"3M ({answers.domain(name)['domain']})"


async def test_the_play_of_the_docs_runs(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/plays.md").read_text(), re.DOTALL)
    path = tmp_path / "play.py"
    path.write_text(block)
    play = load(str(path), None, ["Symbol", "Security"])
    assert play.secrets == ("REGISTRY_KEY",)
    outputs = await worked_out(play, {"Symbol": "MMM", "Security": "3M"})
    assert outputs["label"].startswith("3M (mmm-")
    assert not play.dataset.qualifies({"Symbol": "TEST", "Security": "x"})


@pytest.mark.parametrize("name", ["Dataset", "Params", "Provider", "Tool", "bearer", "col", "rate"])
def test_a_public_name_is_there_and_documented_with_an_example(name: str) -> None:
    import rowmill

    assert name in rowmill.__all__
    assert ">>>" in str(getattr(rowmill, name).__doc__)
