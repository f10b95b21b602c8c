"""Two dependent calls: a company by its symbol, then the domain of the company of that name."""

from typing import Any

from rowmill import Dataset, Params, Provider, Row, RowContext, Tool, col


class Options(Params):
    """Where the two providers are, and how many calls each takes at once."""

    base_url: str
    concurrency: int = 200


registry = Provider("registry", base_url=Options.base_url, concurrency=Options.concurrency)
names = Provider("names", base_url=Options.base_url, concurrency=Options.concurrency)

profile = Tool("registry.profile", registry, post="/company")
domain = Tool("names.domain", names, post="/domain")


async def domain_of_company(row: Row, ctx: RowContext) -> Any:
    """Ask for the domain of the company that the first call named."""
    return await ctx.tools.execute(domain, {"company": row["company"]["name"]})


enriched = (
    Dataset("enriched", key="symbol")
    .with_column("company", profile(symbol=col("symbol")))
    .with_column("domain", domain_of_company)
)
