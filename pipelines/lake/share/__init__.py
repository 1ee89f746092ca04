"""Share a snapshot without its personal data: a sample of the keys, and masked values.

====================  ===============================================================
`sharing`             the plan for each state, and its refusals
`sampling`            the keys of a sample
`mask_file`           the file with a user's rules
`parts`               the parts of a column, with their serializers and rules
`masking`             masking of columns, also of nested values
`ciphers`             masking of values by a secret, the same everywhere
====================  ===============================================================

Nothing here reads or writes a file of state: an export does, and calls it for each batch of rows.
"""
