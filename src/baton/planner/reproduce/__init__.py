"""Published planning results, run again on the fast host; one module for each result.

A module named `r<number>.py` holds a `REPRODUCTION`; it is found by its name.
"""
