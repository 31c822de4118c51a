"""What one step costs on a named machine: published tables, fits, measured profiles, rooflines."""
