"""Commands about keys.

==============  =====================================================================
`one_key`       `get` and `history`: the state of one key, and its changes
`finding`       `find`: where a value is
`expiring`      `expired`: what has expired at a time to live
`heavy_keys`    `top`: the heaviest keys
==============  =====================================================================
"""
