"""How many racks serve 200 million output tokens a second, what they draw and cost, and what one fewer would miss."""

from __future__ import annotations

import rackplan

MODEL, TOK_S = "deepseek-v3", "200M"

# Traffic has peaks: 60 % mean over peak. Eight racks stand by.
found = rackplan.size(MODEL, "gb200-nvl72", tok_s=TOK_S, utilization=0.6, spares=8)
bill = found.bill
print(f"Racks       {found.racks.count:,} of 72 GPUs, {found.serving_racks.count:,} of them serve")
print(f"Power       {bill.power_w / 1e6:.0f} MW")
print(f"Cost        {bill.usd_per_year / 1e6:,.0f} million USD a year")
print(f"            {bill.usd_per_million(found.demand.tok_s):.3f} USD per million tokens")
peak = found.demand.tok_s / found.demand.utilization
for fewer in found.fewer:
    print(f"  {fewer.units:,} that serve would miss {1 - fewer.tok_s / peak:.2%} of the peak")

# A slower promise takes fewer racks, a faster one more.
for tpot_ms in (30, 100):
    other = rackplan.size(MODEL, "gb200-nvl72", tok_s=TOK_S, utilization=0.6, spares=8, tpot_ms=tpot_ms)
    print(f"At {1000 / tpot_ms:3.0f} tokens/s a user  {other.racks.count:,} racks")

# Shorter requests: prompts of 2,000 tokens, answers of 500.
short = rackplan.size(MODEL, "gb200-nvl72", tok_s=TOK_S, isl=2000, osl=500)
print(f"With prompts of 2,000 tokens  {short.racks.count:,} racks")
