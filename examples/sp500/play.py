"""Find the domain of each company of the S&P 500.

Asks the practice provider twice per company: what it is, then where it lives. Start one with
`rowmill provider serve --port 8090`, or name another by `--param base_url=https://…`.
"""

from typing import Any

from pydantic import BaseModel

from rowmill import Dataset, Params, Provider, Row, RowContext, Tool, col


class Options(Params):
    base_url: str = "http://127.0.0.1:8090"


class Profile(BaseModel):
    name: str
    employees: int | None = None


practice = Provider("practice", base_url=Options.base_url)
profile = Tool("practice.profile", practice, post="/company", output=Profile)
domain = Tool("practice.domain", practice, post="/domain")


async def resolve_domain(row: Row, ctx: RowContext) -> Any:
    """Ask for the domain of the company by the name that the profile gave it."""
    return await ctx.tools.execute(domain, {"company": row["profile"].name})


def label(row: Row) -> str:
    """One line for people."""
    return f"{row['Security']} ({row['domain']['domain']})"


companies = (
    Dataset("companies", key="Symbol")
    .with_column("profile", profile(symbol=col("Symbol")))
    .with_column("domain", resolve_domain)
    .with_column("label", label)
)
