"""Flink SQL's types: rows, arrays and maps in its binary format, and its operators' values.

====================  ===============================================================
`types/`              logical types: their text, their Java streams, their objects
`binary/`             the binary format, column by column
`row_data`            serializers of rows, arrays and maps
`section_data`        values that are sections of the binary format
`table_data`          the other internal types: strings, decimals, raw values
`table_timestamps`    timestamps
`table_variants`      variants
`table_collections`   lists and maps of the table runtime
`table_structures`    values of the runtime's own operators
`table_views`         list and map views of aggregate functions
====================  ===============================================================

A new logical type starts in `types/logical_types`; a new operator's value in `table_structures`.
"""
