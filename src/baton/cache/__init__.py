"""K/V memory as bookkeeping: blocks, reference counts, prefix hash chains."""
