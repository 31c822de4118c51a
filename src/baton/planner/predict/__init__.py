"""Times of measured deployments, predicted from operator tables: `baton predict`."""
