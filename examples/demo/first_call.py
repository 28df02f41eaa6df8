"""A pandas function, run cold and behind its imports; prints arrive while it runs."""

from shop import receipt_line, revenue

cold = revenue.bind(disable_optimized_execution=True)
colds, ahead = [], []
for turn in range(1, 4):
    for title, function, totals in (("cold", cold, colds), ("behind its imports", revenue, ahead)):
        call = function.spawn(300_000)
        value = call.get(timeout=120)
        totals.append(call.receipt.total_ms)
        print(f"{title}, {turn}: {value}\n  {receipt_line(call.receipt)}")
middle, sooner = sorted(colds)[1], sorted(ahead)[1]
print(f"medians: {middle:.0f} ms cold, {sooner:.0f} ms behind its imports: {middle / sooner:.1f} x")
