"""The whole chain at full speed: a backlog in Kafka, and how long the sinks take to apply it."""
