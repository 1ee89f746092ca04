"""Compiled plans of Flink SQL: what each operator's state means, and what a changed query keeps.

=============  ============================================================================
`plan`         a plan's nodes, from the JSON of `COMPILE PLAN`
`meanings`     trees of what a field, a condition or rows mean
`lineage`      what each field of each node is, over the tables
`kinds`        of each kind of node what it emits, what it keeps, and when that stays
`states`       the states of each node, and the meaning of each column in them
`data_views`   the columns of an accumulator row that stand for a view, or have one
`matching`     which operator of the new plan goes on from which of the old one, and its columns
`around`       what the nodes around an operator make of what it keeps
`matches`      what comes of that: the fate of each operator, state and column
`folds`        from what state below a new column of an aggregate is computed in full
`expressions`  what of a plan can be computed from columns, and its values
`topology`     ids of operators without uids, in jobs that run without a plan
`handling`     what Flink does by itself with the savepoint and the new plan
`versions`     what a version of Flink keeps otherwise than the one before, of the same query
`naming`       names of a snapshot's operators, keys and columns
=============  ============================================================================

Nothing here reads entries. `pipelines.lake.change.sql_upgrading` holds a match to the states of a
snapshot, and rewrites them.
"""
