"""`baton profile`: measures steps, transfer, overhead and contention, and fits what they cost."""
