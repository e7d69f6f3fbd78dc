"""The demo: a shop database, people using it, and the proof that three stores stayed equal to it."""
