"""Commands about keys.

==============  =====================================================================
`one_key`       `get` and `history`: all that is held for one, and what changed of it
`heavy_keys`    `top`: which are heavy
==============  =====================================================================
"""
