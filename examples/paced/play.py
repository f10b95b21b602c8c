"""One call a row, at the limits that you name: watch how a lane behaves.

`rowmill provider serve --port 8090 --limits 200/s` enforces the same limits, and counts what comes.
"""

from rowmill import Dataset, Params, Provider, Tool, batch, col, rate


class Options(Params):
    base_url: str = "http://127.0.0.1:8090"
    limits: str = "200/s"
    batch: int = 1


paced = Provider(
    "paced",
    base_url=Options.base_url,
    limits=[rate(text.strip()) for text in Options.limits.split(",")],
)
companies_at_once = batch(
    post="/company/batch", size=Options.batch, members="symbols", match="symbol", linger_ms=100
)
company = Tool(
    "paced.company",
    paced,
    post="/company",
    cost=0.001,
    batch=companies_at_once if Options.batch > 1 else None,
)

companies = Dataset("paced", key="symbol").with_column("company", company(symbol=col("symbol")))
