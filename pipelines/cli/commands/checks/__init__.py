"""`statelake check`: find what would go wrong after a deploy.

===========  =====================================================================
`group`      the group, and `check compatibility`
`integrity`  `check integrity`
`legality`   `check legality`
===========  =====================================================================
"""
