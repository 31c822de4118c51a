"""One module per trace format; each turns a file's rows into requests and counts what it omits."""
