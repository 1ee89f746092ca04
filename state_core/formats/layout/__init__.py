"""How a state's entries are laid out, whatever the file that holds them.

========================  ===========================================================
`meta_info`               what a file says of its states
`headers`                 the head of a file, which says nowhere how long it is
`keyed_layout`            entries to typed columns and back
`keyed_states`            from meta info to layout
`row_writer`              rows into the bytes of entries
`keys`                    keys as bytes, and the entries that have one
`conforming`              a column of someone's as the type that a state has
`state_compatibility`     what a new serializer makes of a state
========================  ===========================================================

A new kind of keyed state is a class in `keyed_layout`.
"""
