"""Serializers of single values: numbers, text, dates, enums.

====================  ===============================================================
`numbers`             numbers, booleans, characters
`text`                strings, byte arrays, and bytes that are carried as they are
`big_numbers`         `BigInteger` and `BigDecimal`
`times`               dates and times; `fields` and `calendars` under them
`enums`               enums
`values`              `IntValue` and its like, and types without a value
`element_columns`     elements of lists and maps in columns, for every collection
====================  ===============================================================

A new basic type goes beside those that have its width: fixed numbers in `times`, text in `text`.
"""
