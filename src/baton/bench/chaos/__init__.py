"""`baton chaos`: faults against a real deployment under load, judged from outside."""
