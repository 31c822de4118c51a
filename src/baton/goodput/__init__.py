"""Goodput under two clocks: records of finished requests, attainment, intervals, rate search."""
