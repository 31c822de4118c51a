"""Folds over the trace stream: metrics and byte ledgers."""
