"""Snapshots for others than those whose data it is: a sample of the keys, and values masked.

====================  ===============================================================
`sharing`             what becomes of each state, and what is refused
`sampling`            which keys are in a sample
`mask_file`           the file in which a user says what is masked
`parts`               the parts of a column, what writes each, and which rule holds it
`masking`             columns masked, whatever is nested in them
`ciphers`             values masked by a secret: the same one alike wherever it is
====================  ===============================================================

Nothing here reads or writes a file of state: an export does, and asks for each batch of rows.
"""
