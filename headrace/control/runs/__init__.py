"""Runs: tables read anew beside the stream, then what the source no longer has removed from the sinks.

Resnapshot by mark and sweep. The mark is the end offset S of each partition of a table's topic. Every live
row gets a newer record at or above its partition's S, from the snapshot or from the stream; when a sink has
settled past the snapshot's end, a row still stored below S is gone from the source. Readers never see a gap,
and other tables keep streaming.

Each call is a run of its own, kept in the registry and carried out by a process under the engine's guardian:
it goes on when the command that asked for it is gone.
"""
