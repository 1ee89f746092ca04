"""A snapshot into tables: `importing` plans and commits, `import_slice` does one slice's work,
`import_targets` says which table a state goes to.
"""
