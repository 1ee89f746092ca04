"""What Flink's own operators keep in state, beside users' values.

====================  ===============================================================
`cep`                 partial matches of pattern detection
`joins`               buffered rows of joins
`sinks`               transactions of two-phase sinks
`stream_elements`     elements that asynchronous I/O waits for
====================  ===============================================================

Another operator's value is a module here, registered like any other serializer.
"""
