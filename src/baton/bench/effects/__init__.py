"""Effects of handing K/V over, measured with real processes on this machine."""
