"""The chain simulated: a database, its connector, a topic, drivers that die and a store in trouble."""
