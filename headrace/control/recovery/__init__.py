"""The steps of a recovery: a new life of a source is begun, handed to its sinks, and what is left is removed.

What is wrong with one table's target stops none of them: that table is left out at that sink, by name.
"""
