"""What may be used and what was used: plans and sizes, list prices, counted usage, totals, compute
credit.

It decides which machine a plan includes and when credit is used up. It reads no counters: nodes do,
and hand them in.
"""
