"""The three stores as any of their users sees them: plain clients, and the addresses a sink publishes."""
