"""The command line: an edge without logic of its own."""
