"""`baton top`: in a terminal what the page at /dashboard shows, from the same feed."""
