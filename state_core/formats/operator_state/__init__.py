"""Files of operator state: lists, union lists and broadcast maps.

========================  ===========================================================
`operator_file`           one file, its header and the positions of its elements
`operator_reader`         its elements as typed columns
`operator_states`         all subtasks' files as the states of an operator, and back
========================  ===========================================================

A new version of the header goes into `operator_file`.
"""
