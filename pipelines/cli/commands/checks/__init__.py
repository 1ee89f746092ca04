"""`statelake check`: what would go wrong after a deploy, asked before it.

===========  =====================================================================
`group`      the group, and `check compatibility`
`integrity`  `check integrity`
`legality`   `check legality`
===========  =====================================================================
"""
