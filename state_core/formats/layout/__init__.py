"""The layout of a state's entries, in any file.

========================  ===========================================================
`meta_info`               a file's description of its states
`keyed_layout`            entries to typed columns and back, rows to their bytes
`keyed_states`            the layout of a state, from its meta info
`keys`                    keys as bytes, and the entries of a key
`conforming`              a user's column, cast to the type of a state
`state_compatibility`     the compatibility of a state with a new serializer
`state_types`             the types of states as text, and their differences
========================  ===========================================================

A new kind of keyed state is a class in `keyed_layout`.
"""
