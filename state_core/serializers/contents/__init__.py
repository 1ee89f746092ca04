"""What the text or the bytes of a state hold, as its user says.

===============  ===================================================================
`content`        a text or bytes that hold something else
`json_texts`     JSON, of a shape that is given or found in values
`avro_messages`  records of Avro behind the number of their schema in a registry
`sayings`        what a user says of them, as one line that is kept with a state
===============  ===================================================================

Nothing in a snapshot tells it: to Flink the value is a text. The snapshot's bytes stay as they are,
and a row that would be written otherwise keeps its own beside its columns.
"""
