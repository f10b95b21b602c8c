"""Loading: what is wrong is said with the line, and every process loads the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from rowmill import Params
from rowmill.errors import PlayError
from rowmill.plays.checks import KeyColumnMissing
from rowmill.plays.loading import LoadedPlay, load

HEAD = """\
from rowmill import Dataset, Params, Provider, Tool, bearer, col, rate
registry = Provider("registry", base_url="http://127.0.0.1:8090")
profile = Tool("registry.profile", registry, post="/company")
"""
TAIL = """\
companies = Dataset("companies", key="Symbol").with_column("profile", profile(symbol=col("Symbol")))
"""


def play(folder: Path, text: str, name: str = "leads.py") -> str:
    path = folder / name
    path.write_text(dedent(text))
    return str(path)


def refusal(path: str, *args: object, **kwargs: object) -> str:
    with pytest.raises(PlayError) as refused:
        load(path, *args, **kwargs)  # type: ignore[arg-type] # forwarded as they are
    assert refused.value.exit_code == 2
    return str(refused.value)


def loaded(folder: Path, text: str, **params: str) -> LoadedPlay:
    return load(play(folder, text), params)


def test_a_loaded_play_names_its_dataset_tools_and_providers(tmp_path: Path) -> None:
    found = loaded(tmp_path, HEAD + TAIL)
    assert found.reference.name == "leads"
    assert found.reference.path == str(tmp_path / "leads.py")
    assert found.dataset.name == "companies"
    assert [tool.id for tool in found.tools] == ["registry.profile"]
    assert [provider.id for provider in found.providers] == ["registry"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("companies = Dataset('c'", "leads.py:4: '(' was never closed"),
        ("import nonsense_module", "leads.py:4: ModuleNotFoundError: No module named"),
        ("1 / 0", "leads.py:4: ZeroDivisionError: division by zero\n    1 / 0"),
        ("raise SystemExit(3)", "leads.py:4: SystemExit: 3"),
        ("from rowmill import Waterfall", "leads.py:4: ImportError"),
        ("", "leads.py: no Dataset"),
        ("companies = Dataset('companies')", 'leads.py:4: Dataset "companies" adds nothing'),
        ("Dataset('a b')", "leads.py:4: Dataset('a b'): a name begins with a letter"),
        ("Dataset('a', key=5)", 'leads.py:4: Dataset "a": key is a column'),
        ("Provider('p', base_url='ftp://x')", 'leads.py:4: Provider "p": base_url: must be http'),
        ("Provider('p', base_url='http://x', concurrency=0)", 'Provider "p": concurrency: input'),
        ("Provider('p', base_url='http://x', auth='KEY')", 'Provider "p": auth: use bearer'),
        ("bearer('sk-live-1234')", "leads.py:4: a secret is named, not written"),
        ("rate('100 per second')", "leads.py:4: rate('100 per second'): write calls per time"),
        ("Tool('t', 'registry', post='/x')", "leads.py:4: Tool \"t\": provider: 'registry' is no"),
        ("Tool('t', registry)", 'leads.py:4: Tool "t": give one of post='),
        ("Tool('t', registry, post='x')", "leads.py:4: Tool \"t\": path: must start with '/'"),
        ("Tool('t', registry, post='/x', timeout_s=901)", 'Tool "t": timeout_s: input should be'),
        ("Tool('t', registry, post='/x', stale_after='soon')", "write a time such as 30d"),
        ("Tool('t', registry, post='/x', output=object())", 'leads.py:4: Tool "t": output:'),
        ("Dataset('d').with_column('p', profile)", "column 'p': say what to ask: registry.profile"),
        ("Dataset('d').with_column('p', 5)", "column 'p': a tool call or a function is wanted"),
        ("Dataset('d').with_column('p', lambda row, ctx: 1)", "must be `async def (row, ctx)`"),
        ("Dataset('d').with_column('p', lambda row: 1, on_error='stop')", 'on_error is "fail" or'),
        ("profile(symbol={1, 2})", "leads.py:4: registry.profile(symbol) is a set, not JSON"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, lines: str, said: str) -> None:
    message = refusal(play(tmp_path, HEAD + lines + "\n"))
    assert said in message
    assert "rowmill/plays" not in message
    assert "sk-live" not in message


def test_the_line_of_a_column_is_its_own(tmp_path: Path) -> None:
    text = """
    from rowmill import Dataset
    companies = (
        Dataset("companies")
        .with_column("label", lambda row: 1)
        .with_column("other", lambda row: 2)
        .with_column("label", lambda row: 3)
    )
    """
    message = refusal(play(tmp_path, text))
    assert 'leads.py:7: column "label" stands twice; the first is at ' in message
    assert message.endswith("leads.py:5.")


def test_an_exception_in_a_module_beside_the_play_is_shown_there(tmp_path: Path) -> None:
    play(tmp_path, "def boom():\n    return {}['x']\n", "common.py")
    message = refusal(play(tmp_path, "from common import boom\nboom()\n"))
    assert "common.py:2: KeyError: 'x'\n    return {}['x']" in message
    assert "common" not in sys.modules


def test_a_missing_play_is_a_sentence(tmp_path: Path) -> None:
    play(tmp_path, HEAD + TAIL)
    message = refusal(str(tmp_path / "lead.py"))
    assert message.endswith('lead.py: no such file. Did you mean "leads.py"? Nothing was called.')
    assert "a folder, not a play. Did you mean" in refusal(str(tmp_path))
    assert "no such file, and no such module" in refusal("no.such.module")


def test_several_datasets_are_refused_and_a_grown_one_is_one(tmp_path: Path) -> None:
    text = (
        HEAD + "bare = Dataset('a')\ngrown = bare.with_column('x', lambda row: 1)\nalias = grown\n"
    )
    assert loaded(tmp_path, text).dataset.name == "a"
    message = refusal(play(tmp_path, text + "b = Dataset('b').with_column('x', lambda row: 1)\n"))
    assert '2 datasets: "a"' in message
    assert '"b"' in message


def test_a_column_the_input_lacks_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = play(tmp_path, HEAD + TAIL.replace('key="Symbol"', 'key="CIK"'))
    message = refusal(path, None, ["CIK", "Symbols"], source="leads.csv")
    assert 'leads.py:4: column "profile": col("Symbol"): neither leads.csv nor a column before' in (
        message
    )
    assert 'Did you mean "Symbols"?' in message
    load(path, None, ["CIK", "Symbol"])


def test_a_column_worked_out_later_is_no_input_of_an_earlier_one(tmp_path: Path) -> None:
    text = (
        HEAD
        + TAIL.replace('col("Symbol")', 'col("note")').rstrip()
        + ('.with_column("note", lambda row: "n")\n')
    )
    assert "is worked out later" in refusal(play(tmp_path, text), None, ["Symbol"])


def test_a_key_the_input_lacks_is_refused_before_anything_is_called(tmp_path: Path) -> None:
    path = play(tmp_path, HEAD + TAIL)
    with pytest.raises(KeyColumnMissing) as refused:
        load(path, None, ["Simbol", "Name"], source="leads.csv")
    assert str(refused.value) == (
        'leads.csv, line 1: no column "Symbol"; set key= to one of Simbol, Name. '
        'Did you mean "Simbol"? Nothing was called.'
    )
    assert refused.value.exit_code == 2


def test_replace_needs_something_to_replace(tmp_path: Path) -> None:
    text = HEAD + "d = Dataset('d').with_column('Name', lambda row: 1, replace=True)\n"
    path = play(tmp_path, text)
    load(path, None, ["Name"])
    assert "replace=True, but the input has no column" in refusal(path, None, ["name"])


def test_one_id_for_two_tools_is_refused(tmp_path: Path) -> None:
    text = HEAD + "other = Tool('registry.profile', registry, post='/other')\n" + TAIL
    assert 'leads.py:4: Tool "registry.profile" is defined twice' in refusal(play(tmp_path, text))
    twin = HEAD + "other = Tool('registry.profile', registry, post='/company')\n" + TAIL
    assert len(loaded(tmp_path, twin).tools) == 1


@pytest.mark.parametrize("limits", ["rate('1000/s'), rate('100/min')", "rate('5/s'), rate('6/s')"])
def test_limits_that_contradict_are_refused(tmp_path: Path, limits: str) -> None:
    text = HEAD.replace('8090")', f'8090", limits=[{limits}])') + TAIL
    assert "limits contradict" in refusal(play(tmp_path, text))


def test_limits_of_several_windows_are_kept(tmp_path: Path) -> None:
    text = HEAD.replace('8090")', '8090", limits=[rate("100/s"), rate("2000/min")])') + TAIL
    (provider,) = loaded(tmp_path, text).providers
    assert [(limit.calls, limit.per_s) for limit in provider.limits] == [(100, 1), (2000, 60)]


def test_an_output_that_cannot_be_described_as_json_is_refused(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
from typing import Callable
from pydantic import BaseModel
class Odd(BaseModel):
    call: Callable[[], int]
odd = Tool("odd", registry, post="/x", output=Odd)
"""
    )
    message = refusal(play(tmp_path, text))
    assert 'leads.py:9: Tool "odd": output: Odd can\'t be described as JSON' in message


def test_params_are_typed_and_fill_the_provider(tmp_path: Path) -> None:
    text = """
    from rowmill import Dataset, Params, Provider, Tool, col
    class Options(Params):
        base_url: str
        depth: int = 1
    registry = Provider("registry", base_url=f"{Options.base_url}/v2")
    ask = Tool("registry.ask", registry, post="/x")
    d = Dataset("d").with_column("a", ask(q=col("q"), depth=Options.depth))
    """
    found = loaded(tmp_path, text, base_url="http://h.test", depth="3")
    assert found.providers[0].base_url == "http://h.test/v2"
    assert found.params == {"base_url": "http://h.test", "depth": 3}
    path = found.reference.path
    assert path is not None
    assert "leads.py:3: parameter base_url has no default: give --param base_url=VALUE." in (
        refusal(path)
    )
    assert "--param depth: input should be a valid integer" in (
        refusal(path, {"base_url": "http://h.test", "depth": "deep"})
    )
    assert (
        '--param dept: the play has no such parameter; it has base_url, depth. Did you mean "depth"'
        in (refusal(path, {"base_url": "http://h.test", "dept": "3"}))
    )


def test_the_same_play_is_loaded_with_other_params_beside_it(tmp_path: Path) -> None:
    play(
        tmp_path,
        """
        from rowmill import Params
        class Options(Params):
            host: str = "a.test"
        """,
        "common.py",
    )
    text = """
    from common import Options
    from rowmill import Dataset, Provider, Tool, col
    ask = Tool("ask", Provider("p", base_url=f"http://{Options.host}"), post="/x")
    d = Dataset("d").with_column("a", ask(q=col("q")))
    """
    first = loaded(tmp_path, text, host="b.test")
    second = loaded(tmp_path, text)
    assert first.providers[0].host == "b.test"
    assert second.providers[0].host == "a.test"
    assert first.reference.digest == second.reference.digest


def test_two_plays_may_each_have_a_module_of_one_name(tmp_path: Path) -> None:
    text = "from common import NAME\nfrom rowmill import Dataset\n" + (
        "d = Dataset(NAME).with_column('x', lambda row: NAME)\n"
    )
    names = []
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "lib").mkdir(parents=True)
        play(folder, f"NAME = '{name}'\n", "lib/name.py")
        play(folder, "from lib.name import NAME\n", "common.py")
        names.append(loaded(folder, text).dataset.name)
    assert names == ["one", "two"]
    assert not {"common", "lib", "lib.name"} & sys.modules.keys()


def test_the_digest_covers_the_play_and_the_modules_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    text = "import common\n" + HEAD + TAIL
    play(tmp_path, "X = 1\n", "common.py")
    first = loaded(tmp_path, text).reference.digest
    assert loaded(tmp_path, text).reference.digest == first
    play(tmp_path, "X = 2\n", "common.py")
    second = loaded(tmp_path, text).reference.digest
    assert second != first
    assert loaded(tmp_path, text + "\n").reference.digest not in (first, second)
    play(tmp_path, "X = 1\n", "common.py")
    (tmp_path / "unused.py").write_text("Y = 1\n")
    assert loaded(tmp_path, text).reference.digest == first
    assert not list(tmp_path.glob("__pycache__"))


def test_another_process_and_another_folder_find_the_same_digest(tmp_path: Path) -> None:
    folders = [tmp_path / "here", tmp_path / "there"]
    for folder in folders:
        folder.mkdir()
        play(folder, "X = 1\n", "common.py")
        play(folder, "import common\n" + HEAD + TAIL)
    code = "import sys; from rowmill.plays.loading import load; print(load(sys.argv[1]).reference.digest)"
    there = subprocess.run(
        [sys.executable, "-c", code, str(folders[1] / "leads.py")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert there.stdout.strip() == load(str(folders[0] / "leads.py")).reference.digest


def test_tools_of_an_imported_module_are_known_but_need_no_secret(tmp_path: Path) -> None:
    play(
        tmp_path,
        """
        from rowmill import Provider, Tool, bearer
        crm = Provider("crm", base_url="http://crm.test", auth=bearer("CRM_KEY"))
        contact = Tool("crm.contact", crm, post="/contact")
        """,
        "tools.py",
    )
    found = loaded(tmp_path, "import tools\n" + HEAD + TAIL)
    assert {tool.id for tool in found.tools} == {"registry.profile", "crm.contact"}
    assert found.secrets == ()


def test_a_secret_that_is_not_set_is_named_with_how_to_set_it(tmp_path: Path) -> None:
    text = HEAD.replace('8090")', '8090", auth=bearer("REGISTRY_KEY"))') + TAIL
    found = loaded(tmp_path, text)
    assert found.secrets == ("REGISTRY_KEY",)
    found.check_secrets({"REGISTRY_KEY"}.__contains__)
    with pytest.raises(PlayError, match=r"leads\.py:2: .* set ROWMILL_SECRET_REGISTRY_KEY"):
        found.check_secrets(set[str]().__contains__)


def test_a_play_is_loaded_by_its_modules_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "acme_plays"
    package.mkdir()
    (package / "__init__.py").write_text("")
    play(package, "NAME = 'x'\n", "shared.py")
    play(package, "from acme_plays.shared import NAME\nfrom .shared import NAME\n" + HEAD + TAIL)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = load("acme_plays.leads")
    assert found.reference.module == found.reference.name == "acme_plays.leads"
    play(package, "NAME = 'y'\n", "shared.py")
    assert load("acme_plays.leads").reference.digest != found.reference.digest


def test_a_play_that_is_only_imported_has_its_defaults() -> None:
    class Options(Params):
        hops: int = 2
        host: str

    assert Options.hops == 2
    with pytest.raises(PlayError, match=r"test_loading\.py:\d+: parameter host has no default"):
        assert Options.host
