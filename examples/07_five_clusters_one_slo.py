"""Five clusters, one service level: 20 tokens a second for every user; which is cheapest, which draws least."""

from __future__ import annotations

import rackplan

CLUSTERS = ["hgx-h100", "hgx-h200", "hgx-b200", "gb200-nvl72", "mi355x"]

compared = rackplan.compare(CLUSTERS, "deepseek-v3", gpus=144, tok_s_user=20)
rows = [(row, compared.totals(row)) for row in compared.rows if row.tok_s_per_gpu is not None]
print(f"{'cluster':18s}{'tok/s/GPU':>10s}{'USD/Mtok':>10s}{'Mtok/s/MW':>10s}  bound by")
for row, totals in sorted(rows, key=lambda one: one[1].usd_per_million_tokens or float("inf")):
    usd = "-" if totals.usd_per_million_tokens is None else f"{totals.usd_per_million_tokens:.3f}"
    power = "-" if totals.tok_s_per_mw is None else f"{totals.tok_s_per_mw / 1e6:.2f}"
    print(f"{row.cluster:18s}{row.tok_s_per_gpu:10,.0f}{usd:>10s}{power:>10s}  {row.bound_by}")
for row in compared.rows:
    if row.tok_s_per_gpu is None:
        print(f"{row.cluster:18s}{row.reason}")
print(f"Report      {rackplan.write_report(compared, 'five-clusters.html')}")
