"""Jobs that real Flink compiles or starts here, without input: their plans, types and upgrades.

=================  ====================================================================
`requests`         what is asked of scripts
`sql_scripts`      the plan and the types of a script of Flink SQL
`sql_upgrades`     the upgrade of a SQL job whose query changed
`job_types`        the types of a JAR's states, before the job has run
`java_programs`    small Java programs of ours, which run in the user's Flink
=================  ====================================================================
"""
