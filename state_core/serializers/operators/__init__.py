"""Values of Flink's own operators in state, beside users' values.

====================  ===============================================================
`cep`                 partial matches of pattern detection
`joins`               buffered rows of joins
`sinks`               transactions of two-phase sinks
`statefun`            messages of Stateful Functions, and values of remote ones
`stream_elements`     pending elements of asynchronous I/O
====================  ===============================================================

Another operator's value is a module here, registered like any other serializer.
"""
