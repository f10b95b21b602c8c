"""One call a row, at the limits that you name: watch how a lane behaves.

`rowmill provider serve --port 8090 --limits 200/s` enforces the same limits, and counts what comes.
"""

from rowmill import Dataset, Params, Provider, Tool, col, rate


class Options(Params):
    base_url: str = "http://127.0.0.1:8090"
    limits: str = "200/s"


paced = Provider(
    "paced",
    base_url=Options.base_url,
    limits=[rate(text.strip()) for text in Options.limits.split(",")],
)
company = Tool("paced.company", paced, post="/company", cost=0.001)

companies = Dataset("paced", key="symbol").with_column("company", company(symbol=col("symbol")))
