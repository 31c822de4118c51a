"""`baton plan`: colocated against split for one trace, model, machine and pair of targets."""
