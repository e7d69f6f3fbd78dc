"""Other ways of doing the same, measured beside ours on the same changes."""
