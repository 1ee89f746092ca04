"""Serializers of single values: numbers, text, dates, enums.

====================  ===============================================================
`numbers`             numbers, booleans, characters
`text`                strings and byte arrays
`big_numbers`         `BigInteger` and `BigDecimal`
`times`               dates and times; `fields` and `calendars` under them
`enums`               enums
`values`              `IntValue` and its like, and types without a value
====================  ===============================================================

A new basic type goes beside the others of its width: fixed numbers in `times`, text in `text`.
"""
