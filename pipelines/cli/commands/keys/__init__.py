"""Commands about keys.

==============  =====================================================================
`one_key`       `get`, `history` and `find`: one key, its changes, a value anywhere
`expiring`      `expired`: what has expired at a time to live
`heavy_keys`    `top`: the heaviest keys
==============  =====================================================================
"""
