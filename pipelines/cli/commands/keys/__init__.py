"""Commands about keys.

==============  =====================================================================
`one_key`       `get`, `history` and `find`: one key, its changes, a value anywhere
`heavy_keys`    `top`: the heaviest keys
==============  =====================================================================
"""
