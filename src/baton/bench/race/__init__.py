"""`baton race`: the same requests through colocated and split arms on the same cores."""
