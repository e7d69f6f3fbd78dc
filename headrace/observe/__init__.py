"""What the system says about itself: log events and names, each defined once."""
