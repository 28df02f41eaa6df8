"""What this machine measures: ``make bench`` writes a table of medians and ratios.

Contestants of one table run alternately in one run, so that a machine that slows down slows all of
them; the ratios are what to quote. Raw figures are kept beside the table.
"""
