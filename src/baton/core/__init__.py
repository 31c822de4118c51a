"""Values and arithmetic shared by every package; imports nothing of ours but `errors`."""
